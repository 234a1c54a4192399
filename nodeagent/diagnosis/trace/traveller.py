"""A packet on its way through all hooks: what everybody's rules may ask about it and change. Pure."""

from dataclasses import dataclass, field

from nodeagent.diagnosis.simulator.machine import Machine
from nodeagent.diagnosis.simulator.packet import Packet

LOOPBACK_INTERFACE = "lo"
STATE_INVALID, STATE_ESTABLISHED, STATE_RELATED, STATE_NEW, STATE_UNTRACKED = 1, 2, 4, 8, 64
"""NF_CT_STATE_INVALID_BIT, NF_CT_STATE_BIT of an established, a related and a new connection, and NF_CT_STATE_UNTRACKED_BIT."""
CLIENT_PORTS = range(1024, 65536)
"""From which of them a request comes nobody knows before."""
USUAL_CLIENT_PORTS = range(32768, 61000)
"""To which of them an answer goes: those that Linux gives by default (ip_local_port_range), so that rules for ports of
servers are not about it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A rule that decided something, or could have.

    table: with its family. rule: its number in the chain for ours, 0 for what is no rule. effect: what it did. applied:
    whether it did. unclear: it has a part that cannot be evaluated, and was passed over. may_stop: it would end the
    packet's way. translates: it gave the packet another destination.
    """

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

    @property
    def place(self) -> str:
        """Where the rule stands."""
        return f"{self.table} {self.chain}" + (f" rule {self.rule}" if self.rule else "")


@dataclass(slots=True)
class Traveller:
    """Where a packet is and what it has become. iif, oif: interfaces, empty for none. back: by which the node would
    reach its source. zone: of connection tracking, and its direction (empty: both). zoned: a rule gave it one, be it
    the usual. request: what it answers; None: it asks. early: connection tracking has not seen it yet. new_source: what a rule of others says that its source becomes.
    clamped: a rule makes the other end send shorter segments of TCP. error: type and code, where it is an error of ICMP about a
    connection."""

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
        """Whether it comes in by loopback: its connection is known since it went out, and no rule changes that any more."""
        return self.iif == LOOPBACK_INTERFACE

    @property
    def reply_zone(self) -> int:
        """The zone in which answers belong to its connection (nf_ct_zone_id)."""
        return self.zone if self.zone_direction in ("", "reply") else 0

    @property
    def original(self) -> Packet:
        """The packet that made its connection."""
        return self.request or self.packet

    @property
    def source_port(self) -> int | range:
        """Its source port; a range where it is not known."""
        return CLIENT_PORTS if self.request is None else self.packet.source_port

    @property
    def destination_port(self) -> int | range:
        """Its destination port by now; a range where it is not known."""
        return self.machine.port if self.request is None else USUAL_CLIENT_PORTS

    @property
    def tracked(self) -> bool:
        """Whether connection tracking, and with it translation, sees it."""
        return not self.machine.untracked

    @property
    def has_connection(self) -> bool:
        """Whether rules can ask about its connection. Where it was given a zone before it is tracked, rules of nft cannot."""
        return self.tracked and not self.early

    @property
    def state(self) -> int:
        """Its conntrack state, as a bit. Before it is tracked a packet that was given a zone has the state of a new connection,
        any other that of none (nft_ct.c, nft_ct_get_eval)."""
        if not self.tracked:
            return STATE_UNTRACKED
        if self.error is not None:
            return STATE_RELATED
        if self.early:
            return STATE_NEW if self.zone else STATE_INVALID
        return STATE_NEW if self.request is None else STATE_ESTABLISHED
