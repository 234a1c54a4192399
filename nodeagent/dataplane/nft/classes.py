"""Dispatch classes: the number a frontend maps to, and the chain that number leads to.

A class says how an endpoint is picked: among how many, from which of the two lists, for an address or a node port,
with or without client affinity. nft prints it as `major:minor` in hexadecimal; the minor number is the count.
There is one chain per class in use, never one per service.
"""

from dataclasses import dataclass

MAX_BACKENDS = 0x7FFF
CLUSTER_SCOPE_OFFSET = 0x8000

_CLUSTER_SCOPE = 0x1
_NODE_PORT = 0x2
_STICKY = 0x4

REFUSE = 0xFFFE
DISCARD = 0xFFFF
REFUSE_CHAIN = "refuse"
DISCARD_CHAIN = "discard"


@dataclass(frozen=True, slots=True, order=True)
class PickClass:
    """Pick one of `count` endpoints (1..MAX_BACKENDS)."""

    count: int
    cluster_scope: bool = False
    node_port: bool = False
    sticky: bool = False

    @property
    def number(self) -> int:
        """The class number, 32 bits."""
        major = (
            (_CLUSTER_SCOPE if self.cluster_scope else 0)
            | (_NODE_PORT if self.node_port else 0)
            | (_STICKY if self.sticky else 0)
        )
        return major << 16 | self.count

    @property
    def chain(self) -> str:
        """The chain's name: `pick-3`, `pick-3-nodeport`, `sticky-3-cluster`, …"""
        return (
            f"{'sticky' if self.sticky else 'pick'}-{self.count}"
            f"{'-nodeport' if self.node_port else ''}{'-cluster' if self.cluster_scope else ''}"
        )


def pick_class(number: int) -> PickClass | None:
    """The pick class of a class number; None for refuse, discard and numbers that are no class."""
    major, count = number >> 16, number & 0xFFFF
    if not 1 <= count <= MAX_BACKENDS or major > (_CLUSTER_SCOPE | _NODE_PORT | _STICKY):
        return None
    return PickClass(count, bool(major & _CLUSTER_SCOPE), bool(major & _NODE_PORT), bool(major & _STICKY))
