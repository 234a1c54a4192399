"""The sets and maps of the table: names, key and value types, flags.

One table `nodeagent` in each family, the same shape in both. Names are for people who run `nft list table`.
Raise SCHEMA when a set changes its name, type or meaning: a table of another schema is replaced as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag

from nodeagent.model.addresses import Family
from nodeagent.model.objects import DEFAULT_AFFINITY_SECONDS
from nodeagent.wire.netlink.nf_tables.elements import ElementForm
from nodeagent.wire.netlink.uapi import nf_tables as uapi

TABLE = "nodeagent"
STANDBY_TABLE = "nodeagent-standby"
"""Serves while TABLE is rebuilt."""
FLOWTABLE = "established"
"""The flowtable of our table, if connections are offloaded."""
SCHEMA = 7
COMMENT_PREFIX = f"schema {SCHEMA}:"


class FieldType(Enum):
    """A datatype of nft (libnftables' numbers, include/datatype.h) and its length; addresses depend on the family.

    A slot is the result of `numgen`, for nft an integer of any length: `typeof` defines its length.
    """

    ADDRESS = (0, 0)
    PROTOCOL = (12, 1)
    PORT = (13, 2)
    CLASS = (23, 4)
    SLOT = (4, 4)
    VERDICT = (0xFFFFFF00, 16)


class Flag(IntFlag):
    """enum nft_set_flags."""

    ANONYMOUS = uapi.NFT_SET_ANONYMOUS
    CONSTANT = uapi.NFT_SET_CONSTANT
    INTERVAL = uapi.NFT_SET_INTERVAL
    MAP = uapi.NFT_SET_MAP
    TIMEOUT = uapi.NFT_SET_TIMEOUT
    DYNAMIC = uapi.NFT_SET_EVAL
    CONCAT = uapi.NFT_SET_CONCAT


A, L4, PORT, CLASS, SLOT = FieldType.ADDRESS, FieldType.PROTOCOL, FieldType.PORT, FieldType.CLASS, FieldType.SLOT


@dataclass(frozen=True, slots=True)
class SetSpec:
    """One named set or map. `counter`: every element counts packets and bytes. `size`: a hard limit; None: it grows.

    commented: elements carry a name for people; in an image it follows the value.
    """

    name: str
    key: tuple[FieldType, ...]
    data: tuple[FieldType, ...] = ()
    interval: bool = False
    counter: bool = False
    commented: bool = False
    dynamic: bool = False
    size: int | None = None
    comment: str = ""
    _forms: dict[Family, ElementForm] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_map(self) -> bool:
        """Whether elements carry a value."""
        return bool(self.data)

    @property
    def flags(self) -> Flag:
        """The kernel's set flags."""
        flags = Flag(0)
        if self.data:
            flags |= Flag.MAP
        if self.interval:
            flags |= Flag.INTERVAL
            if len(self.key) > 1:
                flags |= Flag.CONCAT
        if self.dynamic:
            flags |= Flag.TIMEOUT | Flag.DYNAMIC
        return flags

    def key_length(self, family: Family) -> int:
        """Returns the bytes of a key: every field of a concatenation padded to four; a lone field unpadded."""
        return _length(self.key, family)

    def data_length(self, family: Family) -> int:
        """Returns the bytes of a value; 0 for a set."""
        return _length(self.data, family)

    def key_type(self, family: Family) -> int:
        """Returns nft's type number of the key: six bits a field, the first one highest."""
        return _type(self.key, family)

    def data_type(self, family: Family) -> int:
        """Returns the value's type number; 0 for a set."""
        return _type(self.data, family)

    def form(self, family: Family) -> ElementForm:
        """Returns the form of its elements in messages."""
        if (known := self._forms.get(family)) is not None:
            return known
        self._forms[family] = form = ElementForm(
            self.key_length(family),
            self.data_length(family),
            is_map=self.is_map,
            interval=self.interval,
            concatenated=len(self.key) > 1,
            commented=self.commented,
            counted=self.counter,
            timeout_milliseconds=AFFINITY_DEFAULT_TIMEOUT_SECONDS * 1000 if self.dynamic else 0,
        )
        return form

    def field_lengths(self, family: Family) -> tuple[int, ...]:
        """Returns the unpadded lengths of the key's fields."""
        return tuple(_field_length(kind, family) for kind in self.key)


def _field_length(kind: FieldType, family: Family) -> int:
    return family.address_length if kind is FieldType.ADDRESS else kind.value[1]


def _length(fields: tuple[FieldType, ...], family: Family) -> int:
    if len(fields) == 1:
        return _field_length(fields[0], family)
    return sum((_field_length(kind, family) + 3) & ~3 for kind in fields)


def _type(fields: tuple[FieldType, ...], family: Family) -> int:
    if fields == (FieldType.VERDICT,):
        return FieldType.VERDICT.value[0]
    number = 0
    for kind in fields:
        number = number << 6 | ((7 if family is Family.IPV4 else 8) if kind is FieldType.ADDRESS else kind.value[0])
    return number


FRONTENDS = "frontends"
FRONTENDS_CLUSTER_SCOPE = "frontends-cluster-scope"
FRONTENDS_LOCAL_SCOPE = "frontends-local-scope"
NODEPORTS = "nodeports"
NODEPORTS_CLUSTER_SCOPE = "nodeports-cluster-scope"
NODEPORTS_LOCAL_SCOPE = "nodeports-local-scope"
DISPATCH = "dispatch"
DISPATCH_ALLOWED = "dispatch-allowed"
DISPATCH_SCOPED = "dispatch-scoped"
BACKENDS = "backends"
NODEPORT_BACKENDS = "nodeport-backends"
STICKY_IDS = "sticky-ids"
STICKY_IDS_CLUSTER_SCOPE = "sticky-ids-cluster-scope"
NODEPORT_STICKY_IDS = "nodeport-sticky-ids"
NODEPORT_STICKY_IDS_CLUSTER_SCOPE = "nodeport-sticky-ids-cluster-scope"
STICKY_TIMEOUTS = "sticky-timeouts"
NODEPORT_STICKY_TIMEOUTS = "nodeport-sticky-timeouts"
LEARN = "learn"
NODEPORT_LEARN = "nodeport-learn"
AFFINITY = "affinity"
CLUSTER_IPS = "cluster-ips"
CLUSTER_IP_BLOCKS = "cluster-ip-blocks"
CLUSTER_IP_ONLY_BLOCKS = "cluster-ip-only-blocks"
PING_ANSWERS = "ping-answers"
SERVICE_CIDRS = "service-cidrs"
POD_CIDRS = "pod-cidrs"
NODEPORT_ADDRESSES = "nodeport-addresses"
MASQUERADE_FRONTENDS = "masquerade-frontends"
MASQUERADE_NODEPORTS = "masquerade-nodeports"
LOCAL_POLICY_NODEPORTS = "local-policy-nodeports"
HAIRPIN = "hairpin"
GUARDED_FRONTENDS = "guarded-frontends"
ALLOWED_SOURCES = "allowed-sources"
DNS_UNTRACKED = "dns-untracked"
DNS_TRACKED = "dns-tracked"
DNS_REPLIES = "dns-replies"

CLUSTER_IP_BLOCK_MASKS: Mapping[Family, bytes] = {
    Family.IPV4: bytes.fromhex("ffff0000"),
    Family.IPV6: bytes.fromhex("ff" * 14 + "0000"),
}
"""Which bits of a ClusterIP are its block: a service range has few blocks, so looking one up is cheap."""

DISPATCH_SIZE = 4096
"""In a map of fixed size and keys of four bytes the kernel finds an element faster (nft_set_hash.c, nft_hash_lookup_fast).
This many classes at once would need a million endpoints; classes without endpoints are removed after a while."""
ONLY_BLOCKS_SIZE = 1024
"""Fixed, to be as fast. A service range of the API has at most 16 blocks in IPv6 and 256 in IPv4."""
AFFINITY_SIZE = 1 << 17
AFFINITY_DEFAULT_TIMEOUT_SECONDS = DEFAULT_AFFINITY_SECONDS

_FRONTEND = (A, L4, PORT)
_NODEPORT = (L4, PORT)
_NODEPORT_ENDPOINT = (L4, PORT, A, PORT)


def set_specs(*, counters: bool, endpoint_counters: bool = False) -> tuple[SetSpec, ...]:
    """Returns every set and map of the table, in the order in which a packet passes them.

    counters: count connections of each frontend (4-5 % of the load time, 44 bytes an element).
    endpoint_counters: also count how often each endpoint was picked.
    """
    return (
        SetSpec(DNS_UNTRACKED, _FRONTEND, comment="names are answered here, without connection tracking"),
        SetSpec(DNS_TRACKED, _FRONTEND, comment="names are answered here, in connections"),
        SetSpec(DNS_REPLIES, _FRONTEND, comment="from where answers leave without connection tracking"),
        SetSpec(
            FRONTENDS,
            _FRONTEND,
            (CLASS,),
            counter=counters,
            commented=True,
            comment="service address to dispatch class",
        ),
        SetSpec(ALLOWED_SOURCES, (*_FRONTEND, A), interval=True),
        SetSpec(GUARDED_FRONTENDS, _FRONTEND, (CLASS,), comment="for whom allowed-sources has let in"),
        SetSpec(FRONTENDS_CLUSTER_SCOPE, _FRONTEND, (CLASS,), comment="by-source: for pods and this node"),
        SetSpec(FRONTENDS_LOCAL_SCOPE, _FRONTEND, (CLASS,), comment="by-source: for everyone else"),
        SetSpec(CLUSTER_IP_BLOCKS, (A,), comment="the /16 or /112 of every ClusterIP"),
        SetSpec(
            CLUSTER_IP_ONLY_BLOCKS,
            (A,),
            size=ONLY_BLOCKS_SIZE,
            comment="those without other addresses of Services and of node ports",
        ),
        SetSpec(CLUSTER_IPS, (A,)),
        SetSpec(PING_ANSWERS, (A,), (A,), interval=True, comment="who answers for ClusterIPs that are not local"),
        SetSpec(SERVICE_CIDRS, (A,), interval=True),
        SetSpec(POD_CIDRS, (A,), interval=True),
        SetSpec(NODEPORT_ADDRESSES, (A,), interval=True),
        SetSpec(NODEPORTS, _NODEPORT, (CLASS,), counter=counters, commented=True),
        SetSpec(NODEPORTS_CLUSTER_SCOPE, _NODEPORT, (CLASS,)),
        SetSpec(NODEPORTS_LOCAL_SCOPE, _NODEPORT, (CLASS,)),
        SetSpec(
            DISPATCH,
            (CLASS,),
            (FieldType.VERDICT,),
            size=DISPATCH_SIZE,
            comment="class to chain: the minor number is the endpoint count",
        ),
        SetSpec(DISPATCH_ALLOWED, (CLASS,), (FieldType.VERDICT,), comment="behind the look at source ranges"),
        SetSpec(DISPATCH_SCOPED, (CLASS,), (FieldType.VERDICT,), comment="behind the choice between two lists"),
        SetSpec(
            BACKENDS,
            (*_FRONTEND, SLOT),
            (A, PORT),
            counter=endpoint_counters,
            comment="frontend and slot to endpoint",
        ),
        SetSpec(NODEPORT_BACKENDS, (*_NODEPORT, SLOT), (A, PORT), counter=endpoint_counters),
        SetSpec(STICKY_IDS, _FRONTEND, (CLASS,)),
        SetSpec(STICKY_IDS_CLUSTER_SCOPE, _FRONTEND, (CLASS,)),
        SetSpec(NODEPORT_STICKY_IDS, _NODEPORT, (CLASS,)),
        SetSpec(NODEPORT_STICKY_IDS_CLUSTER_SCOPE, _NODEPORT, (CLASS,)),
        SetSpec(STICKY_TIMEOUTS, _FRONTEND, (CLASS,), comment="affinity timeout in seconds, hexadecimal"),
        SetSpec(NODEPORT_STICKY_TIMEOUTS, _NODEPORT, (CLASS,)),
        SetSpec(LEARN, (CLASS,), (FieldType.VERDICT,)),
        SetSpec(NODEPORT_LEARN, (CLASS,), (FieldType.VERDICT,)),
        SetSpec(
            AFFINITY, (A, L4, CLASS), (A, PORT), dynamic=True, size=AFFINITY_SIZE, comment="which endpoint a client had"
        ),
        SetSpec(MASQUERADE_FRONTENDS, _FRONTEND),
        SetSpec(MASQUERADE_NODEPORTS, _NODEPORT_ENDPOINT, comment="node port and endpoint"),
        SetSpec(LOCAL_POLICY_NODEPORTS, _NODEPORT_ENDPOINT),
        SetSpec(HAIRPIN, (A, A), comment="endpoints on this node that may reach themselves"),
    )


PROGRAM_SETS = frozenset({DISPATCH, DISPATCH_ALLOWED, DISPATCH_SCOPED, LEARN, NODEPORT_LEARN})
"""Maps whose elements point to chains: they belong to the program, not to the services' data."""

DATA_SETS = tuple(
    spec.name for spec in set_specs(counters=False) if spec.name not in PROGRAM_SETS and spec.name != AFFINITY
)
"""Sets whose content the services and the node decide; learned affinity and the verdict maps are not among them."""
