"""A packet on its way through all hooks: what rules may read and change. Pure."""

from dataclasses import dataclass, field

from nodeagent.diagnosis.simulator.machine import Machine
from nodeagent.diagnosis.simulator.packet import Packet

LOOPBACK_INTERFACE = "lo"
STATE_INVALID, STATE_ESTABLISHED, STATE_RELATED, STATE_NEW, STATE_UNTRACKED = 1, 2, 4, 8, 64
"""NF_CT_STATE_INVALID_BIT, NF_CT_STATE_BIT of an established, a related and a new connection, and
NF_CT_STATE_UNTRACKED_BIT."""
CLIENT_PORTS = range(1024, 65536)
"""Possible source ports of a request; which one is not known in advance."""
USUAL_CLIENT_PORTS = range(32768, 61000)
"""Destination ports of an answer: Linux' default range (ip_local_port_range), so that rules for ports of servers do not
match."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A rule that decided something, or could have.
    table: with its family. rule: its number in the chain for ours, 0 if it is not a rule. effect: what it did. applied:
    whether it did. unclear: it has a part that cannot be evaluated, and was skipped. may_stop: it would stop the
    packet. translates: it gave the packet another destination. program: the firewall whose table it is; empty for others."""

    hook: str
    table: str
    chain: str
    text: str
    effect: str = ""
    rule: int = 0
    handle: int = 0
    applied: bool = True
    unclear: bool = False
    may_stop: bool = False
    translates: bool = False
    program: str = ""

    def __str__(self) -> str:
        """Hook, table, chain and text of the rule."""
        return f"{self.hook}: {self.table}, chain {self.chain}: {self.text}"

    @property
    def place(self) -> str:
        """Table, chain and number of the rule."""
        return f"{self.table} {self.chain}" + (f" rule {self.rule}" if self.rule else "")


@dataclass(slots=True)
class Traveller:
    """A packet's position and state. iif, oif: interfaces, empty for none. back: the interface towards its source.
    zone: of connection tracking, and its direction (empty: both). zoned: a rule gave it one, even the default. request:
    the packet that it answers; None: it is a request. early: connection tracking has not seen it yet. new_source: the
    source that a rule of another program gives it. clamped: a rule makes the other end send shorter TCP segments.
    error: type and code, if it is an ICMP error about a connection."""

    packet: Packet
    machine: Machine
    iif: str
    oif: str = ""
    back: str = ""
    address: str = ""
    mark: int = 0
    hook: str = ""
    rejected: str = ""
    rerouted: bool = False
    decisions: list[Decision] = field(default_factory=list)
    zone: int = 0
    zone_direction: str = ""
    zoned: bool = False
    request: Packet | None = None
    early: bool = False
    new_source: str = ""
    clamped: bool = False
    error: tuple[str, int] | None = None

    @property
    def came_back(self) -> bool:
        """Whether it comes in through loopback: its connection is tracked since it went out, and no rule changes that."""
        return self.iif == LOOPBACK_INTERFACE

    @property
    def reply_zone(self) -> int:
        """The zone in which answers belong to its connection (nf_ct_zone_id)."""
        return self.zone if self.zone_direction in ("", "reply") else 0

    @property
    def original(self) -> Packet:
        """The packet that created its connection."""
        return self.request or self.packet

    @property
    def source_port(self) -> int | range:
        """Its source port; a range if it is unknown."""
        return CLIENT_PORTS if self.request is None else self.packet.source_port

    @property
    def destination_port(self) -> int | range:
        """Its present destination port; a range if it is unknown."""
        return self.machine.port if self.request is None else USUAL_CLIENT_PORTS

    @property
    def tracked(self) -> bool:
        """Whether connection tracking, and with it translation, sees it."""
        return not self.machine.untracked

    @property
    def has_connection(self) -> bool:
        """Whether rules can read its connection. If it was given a zone it is tracked, but nft's rules cannot read it
        before tracking."""
        return self.tracked and not self.early

    @property
    def state(self) -> int:
        """Its conntrack state, as a bit. Before tracking, a packet with a zone has the state of a new connection, any
        other that of none (nft_ct.c, nft_ct_get_eval)."""
        if not self.tracked:
            return STATE_UNTRACKED
        if self.error is not None:
            return STATE_RELATED
        if self.early:
            return STATE_NEW if self.zone else STATE_INVALID
        return STATE_NEW if self.request is None else STATE_ESTABLISHED
