"""What the kernel's routing says, as values, and who is asked for it. Pure."""

from enum import Enum
from typing import Protocol as Interface

from msgspec import Struct

from nodeagent.model.addresses import Family, Protocol


class RouteOutcome(Enum):
    """Where a route leads. REJECTED: the kernel drops the packet without a word (rp_filter, no forwarding)."""

    HERE = "this node"
    OUT = "out"
    NOWHERE = "nowhere"
    BLACKHOLE = "blackhole"
    PROHIBITED = "prohibited"
    REJECTED = "rejected"


class Route(Struct, frozen=True):
    """An answer. source: which address of the node packets of its own get. reason, cure: why no route leads there, and
    what helps."""

    way: RouteOutcome
    interface: str = ""
    gateway: str = ""
    source: str = ""
    reason: str = ""
    cure: str = ""

    def __str__(self) -> str:
        if self.way is RouteOutcome.HERE:
            return "delivered here"
        if self.way is not RouteOutcome.OUT:
            return f"{self.way.value} ({self.reason})" if self.reason else self.way.value
        return f"out by {self.interface}" + (f" via {self.gateway}" if self.gateway else "")


class Between(Enum):
    """How two hosts behind one interface reach each other: routed by this node, over a bridge of this node and by way of its
    rules (br_netfilter) or past them, or without it."""

    HERE = "here"
    FILTERED = "filtered"
    BRIDGED = "bridged"
    PAST = "past"


class Leg(Struct, frozen=True):
    """A packet as the routing sees it. interface: by which it came in; empty when the node sends it. port, source_port: 0
    where they are not known."""

    destination: str
    source: str = ""
    interface: str = ""
    protocol: Protocol = Protocol.TCP
    port: int = 0
    mark: int = 0
    source_port: int = 0


class Router(Interface):
    """Who knows the routes of the node, its interfaces and its sockets."""

    def route(self, leg: Leg) -> Route:
        """Where a packet goes."""
        ...

    def listens(self, address: str, port: int, protocol: Protocol, *, exactly: bool = False) -> bool:
        """Whether a program of the node waits for connections there. exactly: bound to this very address."""
        ...

    def between(self, interface: str, family: Family) -> Between:
        """How packets go between two hosts that are both behind an interface."""
        ...

    def bridge_of(self, address: str) -> str:
        """The bridge behind which a host is that no route leads to; empty for none. What a bridge carries needs no route."""
        ...

    def back_by_port(self, route: Route, destination: str) -> Route:
        """The route of a packet that goes back to where it came from, or why the bridge that it came by does not give it back."""
        ...

    def width(self, interface: str) -> int:
        """The longest packet that an interface takes, in bytes; 0 where that is not known."""
        ...

    def beyond(self, route: Route, destination: str) -> Route:
        """The same route, or why nobody is there at its end."""
        ...
