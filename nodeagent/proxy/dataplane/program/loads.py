"""How rules load keys into registers, and the two idioms of which all our lookups are made (pure).

A key is loaded from register 0 on, field by field. A lookup that misses ends its rule, which is why a scratch value is
set and used within one rule.
"""

from dataclasses import dataclass
from ipaddress import ip_network

from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.wire.netlink.netfilter import nfproto
from nodeagent.wire.netlink.nf_tables import expressions as nft
from nodeagent.wire.netlink.uapi.nfnetlink_conntrack import IPS_DST_NAT
from nodeagent.wire.netlink.uapi.rtnetlink import RTN_LOCAL

_IFNAMSIZ = 16
_TRANSPORTS = tuple(bytes((protocol,)) for protocol in Protocol)


@dataclass(frozen=True, slots=True)
class Loader:
    """Loads one family's fields into registers; an address fills `words` of them."""

    family: Family

    @property
    def words(self) -> int:
        """The number of registers that an address fills."""
        return self.family.address_length // 4

    @property
    def nfproto(self) -> int:
        """The family's number in netfilter."""
        return nfproto(self.family)

    def source(self, reg: int) -> nft.Payload:
        """Loads saddr, the source address."""
        return self.source_start(reg, self.family.address_length)

    def source_start(self, reg: int, length: int) -> nft.Payload:
        """Loads the first `length` bytes of saddr."""
        return nft.Payload(reg, nft.PayloadBase.NETWORK, 12 if self.family is Family.IPV4 else 8, length)

    def destination(self, reg: int) -> nft.Payload:
        """Loads daddr, the destination address."""
        offset = 16 if self.family is Family.IPV4 else 24
        return nft.Payload(reg, nft.PayloadBase.NETWORK, offset, self.family.address_length)

    def original_destination(self, reg: int) -> nft.Ct:
        """Loads ct original daddr, the destination before translation."""
        return nft.Ct(reg, nft.CtKey.DST_IP if self.family is Family.IPV4 else nft.CtKey.DST_IP6)

    def frontend(self) -> nft.Rule:
        """Loads daddr . l4proto . dport, from register 0 on."""
        return (self.destination(0), nft.Meta(self.words, nft.MetaKey.L4PROTO), port(self.words + 1))

    def sender(self) -> nft.Rule:
        """Loads saddr . l4proto . sport, from register 0 on."""
        sport = nft.Payload(self.words + 1, nft.PayloadBase.TRANSPORT, 0, 2)
        return (self.source(0), nft.Meta(self.words, nft.MetaKey.L4PROTO), sport)

    def original_frontend(self) -> nft.Rule:
        """Loads the same from the connection's original tuple, in a packet that is already translated."""
        return (
            *_KNOWN_TRANSPORT,
            self.original_destination(0),
            nft.Meta(self.words, nft.MetaKey.L4PROTO),
            nft.Ct(self.words + 1, nft.CtKey.PROTO_DST),
        )

    def node_port(self) -> nft.Rule:
        """Loads l4proto . dport, from register 0 on."""
        return (nft.Meta(0, nft.MetaKey.L4PROTO), port(1))

    def original_node_port(self) -> nft.Rule:
        """Loads the same from the original tuple, if its destination is an address where node ports answer."""
        return (
            self.original_destination(0),
            nft.Lookup(schema.NODEPORT_ADDRESSES, 0),
            *_KNOWN_TRANSPORT,
            nft.Meta(0, nft.MetaKey.L4PROTO),
            nft.Ct(1, nft.CtKey.PROTO_DST),
        )

    def node_port_endpoint(self) -> nft.Rule:
        """Loads l4proto . original dport . daddr . dport: the node port together with the endpoint it was translated to."""
        return (
            *_KNOWN_TRANSPORT,
            nft.Meta(0, nft.MetaKey.L4PROTO),
            nft.Ct(1, nft.CtKey.PROTO_DST),
            self.destination(2),
            port(2 + self.words),
        )


# nft 1.0.6 loads a listing with `ct original proto-dst` only behind a literal test of the connection's protocol.
_KNOWN_TRANSPORT: nft.Rule = (
    nft.Ct(0, nft.CtKey.PROTOCOL),
    nft.OneOf(0, _TRANSPORTS, schema.FieldType.PROTOCOL.value[0]),
)
CLEAR: nft.Rule = (nft.Immediate(0, nft.native_u32(0)), nft.MetaSet(0, nft.MetaKey.PRIORITY))
"""meta priority set none"""

NOT_TRANSLATED: nft.Rule = (
    nft.Ct(0, nft.CtKey.STATUS),
    nft.Mask(0, nft.native_u32(IPS_DST_NAT)),
    nft.Cmp(0, nft.native_u32(0)),
)
"""ct status ! dnat"""
FROM_NODE: nft.Rule = (nft.FibType(0, source=True), nft.Cmp(0, nft.native_u32(RTN_LOCAL)))
"""fib saddr type local"""


def from_pod(regs: Loader, options: ProgramOptions, *, invert: bool = False) -> nft.Rule:
    """Matches traffic of pods (inverted: all other traffic); empty if pods cannot be detected.

    With detection by interface, this is true behind `prerouting` only for packets that have an input interface.
    """
    match options.pod_detection:
        case PodDetection.NONE:
            return ()
        case PodDetection.CIDR:
            if options.pod_range:
                return _source_within(regs, options.pod_range, invert=invert)
            return (regs.source(0), nft.Lookup(schema.POD_CIDRS, 0, invert=invert))
        case PodDetection.INTERFACE | PodDetection.INTERFACE_PREFIX:
            return _by_pod_interface(nft.MetaKey.IIFNAME, options, invert=invert)


def to_pods_interface(options: ProgramOptions, *, invert: bool = False) -> nft.Rule:
    """Matches what leaves by the interface of pods (inverted: by another); empty unless pods are detected by interface."""
    if options.pod_detection in {PodDetection.INTERFACE, PodDetection.INTERFACE_PREFIX}:
        return _by_pod_interface(nft.MetaKey.OIFNAME, options, invert=invert)
    return ()


def _by_pod_interface(key: nft.MetaKey, options: ProgramOptions, *, invert: bool) -> nft.Rule:
    """Compares an interface's name with all of its 16 bytes, or with as many as the prefix has."""
    name = options.interface.encode()
    if options.pod_detection is PodDetection.INTERFACE:
        name = name.ljust(_IFNAMSIZ, b"\0")
    return (nft.Meta(0, key), nft.Cmp(0, name, invert=invert))


def _source_within(regs: Loader, cidr: str, *, invert: bool) -> nft.Rule:
    """Matches saddr CIDR, in the form that nft gives it: of a prefix of whole bytes only these are loaded."""
    network = ip_network(cidr)
    start, rest = divmod(network.prefixlen, 8)
    first = network.network_address.packed
    if not rest:
        return (regs.source_start(0, start), nft.Cmp(0, first[:start], invert=invert))
    return (regs.source(0), nft.Mask(0, network.netmask.packed), nft.Cmp(0, first, invert=invert))


def port(reg: int) -> nft.Payload:
    """Loads the destination port; TCP, UDP and SCTP have it at the same place."""
    return nft.Payload(reg, nft.PayloadBase.TRANSPORT, 2, 2)


def scratch(key: nft.Rule, from_map: str) -> nft.Rule:
    """meta priority set KEY map @from_map"""
    return (*key, nft.Lookup(from_map, 0, dreg=0), nft.MetaSet(0, nft.MetaKey.PRIORITY))


def follow(key: nft.Rule, from_map: str, verdicts: str) -> nft.Rule:
    """meta priority set KEY map @from_map meta priority vmap @verdicts, as one rule"""
    return (*scratch(key, from_map), nft.Meta(0, nft.MetaKey.PRIORITY), nft.LookupVerdict(verdicts, 0))
