"""How many source ports an address of the node has left towards an endpoint, for connections that are masqueraded (pure)."""

from msgspec import Struct

from nodeagent.model.addresses import Protocol, endpoint_text

PORTS = 64512
"""From 1024 to 65535: of these a connection gets one whose own is taken (nf_nat_l4proto_unique_tuple)."""
SCARCE = 0.9
"""The kernel tries some 240 ports, in rows that begin anywhere: where more than this part is taken it often finds none."""


class Crowd(Struct, frozen=True):
    """Connections of one protocol that one address of the node stands for towards one endpoint."""

    protocol: Protocol
    source: str
    endpoint: tuple[str, int]
    count: int

    @property
    def full(self) -> bool:
        """Whether no port is left."""
        return self.count >= PORTS

    def __str__(self) -> str:
        taken = "all" if self.full else f"{self.count} of {PORTS}"
        return f"{taken} source ports of {self.source} towards {endpoint_text(*self.endpoint)}/{self.protocol.name} are taken"


def is_crowded(count: int) -> bool:
    """Whether so many connections leave too few ports."""
    return count >= SCARCE * PORTS


CURE = (
    "see who opens so many: conntrack -L -r {}; give the Service more endpoints, or leave clients their source: "
    "externalTrafficPolicy: Local"
)
"""What to do about one; with the address of its endpoint."""
