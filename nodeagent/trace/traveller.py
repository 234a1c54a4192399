"""A packet on its way through all hooks: what everybody's rules may ask about it and change."""

from dataclasses import dataclass, field

from nodeagent.dataplane.nft.machine import Machine
from nodeagent.dataplane.nft.packet import Packet

STATE_NEW, STATE_UNTRACKED = 8, 64
"""NF_CT_STATE_BIT of a new connection, and NF_CT_STATE_UNTRACKED_BIT."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A rule that decided something, or could have.

    table: with its family. rule: its number in the chain for ours, 0 for what is no rule. effect: what it did. applied:
    whether it did. unclear: it has a part that cannot be evaluated, and was passed over.
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

    @property
    def place(self) -> str:
        """Where the rule stands."""
        return f"{self.table} {self.chain}" + (f" rule {self.rule}" if self.rule else "")


@dataclass(slots=True)
class Traveller:
    """Where a packet is and what it has become. iif, oif: interfaces, empty for none. back: by which the node would
    reach its source."""

    packet: Packet
    machine: Machine
    iif: str
    oif: str = ""
    back: str = ""
    mark: int = 0
    hook: str = ""
    rejected: str = ""
    decisions: list[Decision] = field(default_factory=list)

    @property
    def tracked(self) -> bool:
        """Whether connection tracking, and with it translation, sees it."""
        return not self.machine.untracked

    @property
    def state(self) -> int:
        """Its conntrack state, as a bit."""
        return STATE_NEW if self.tracked else STATE_UNTRACKED
