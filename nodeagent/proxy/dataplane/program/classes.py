"""Dispatch classes: the number that a frontend maps to, and the chain that this number leads to.

A class says how an endpoint is picked: among how many, from which of the two lists, for an address or a node port, with or without client
affinity. nft prints it as `major:minor` in hexadecimal; the minor number is the count. There is one chain for each class in use, never
one for each service. A few numbers that are not a count lead to what only some frontends need: a look at the source, a refusal, a drop.
"""

from dataclasses import dataclass
from functools import lru_cache

MAX_BACKENDS = 0x7FFF
CLUSTER_SCOPE_OFFSET = 0x8000
STICKY_BIT = 0x10000
"""Set in every affinity id: by it the scratch field shows, after the translation, that there is something to learn."""

_CLUSTER_SCOPE = 0x1
_NODE_PORT = 0x2
_STICKY = 0x4

BY_SOURCE = 0xFFFC
BY_SOURCE_NODE_PORT = _NODE_PORT << 16 | BY_SOURCE
GUARDED = 0xFFFD
REFUSE = 0xFFFE
DISCARD = 0xFFFF
BY_SOURCE_CHAIN = "by-source"
BY_SOURCE_NODE_PORT_CHAIN = "by-source-nodeport"
GUARDED_CHAIN = "guarded"
REFUSE_CHAIN = "refuse"
DISCARD_CHAIN = "discard"

END_CHAINS = {REFUSE: REFUSE_CHAIN, DISCARD: DISCARD_CHAIN}
SCOPE_CHAINS = {BY_SOURCE: BY_SOURCE_CHAIN, BY_SOURCE_NODE_PORT: BY_SOURCE_NODE_PORT_CHAIN}
SPECIAL_CHAINS = {**END_CHAINS, **SCOPE_CHAINS, GUARDED: GUARDED_CHAIN}
"""Class number → chain, for the classes that always exist."""


def first_slot(*, cluster_scope: bool) -> int:
    """Returns the first slot of the classes that pick from one of the two lists."""
    return CLUSTER_SCOPE_OFFSET if cluster_scope else 0


@dataclass(frozen=True, slots=True, order=True)
class PickClass:
    """Picks one of `count` endpoints (1..MAX_BACKENDS)."""

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
    def first_slot(self) -> int:
        """The first of the `count` slots of this class."""
        return first_slot(cluster_scope=self.cluster_scope)

    @property
    def chain(self) -> str:
        """The chain's name: `pick-3`, `pick-3-nodeport`, `sticky-3-cluster`, …"""
        return (
            f"{'sticky' if self.sticky else 'pick'}-{self.count}"
            f"{'-nodeport' if self.node_port else ''}{'-cluster' if self.cluster_scope else ''}"
        )


@lru_cache(maxsize=1024)  # each Service asks for the same few
def pick_class(number: int) -> PickClass | None:
    """Returns the pick class of a class number; None for the special classes and for other numbers."""
    major, count = number >> 16, number & 0xFFFF
    if not 1 <= count <= MAX_BACKENDS or major > (_CLUSTER_SCOPE | _NODE_PORT | _STICKY):
        return None
    return PickClass(count, bool(major & _CLUSTER_SCOPE), bool(major & _NODE_PORT), bool(major & _STICKY))
