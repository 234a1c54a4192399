"""The kernel's routing as values, and the interface to it. Pure."""

from enum import Enum
from typing import Protocol as Interface

from msgspec import Struct

from nodeagent.model.addresses import Family, Protocol


class RouteOutcome(Enum):
    """Where a route leads. REJECTED: the kernel drops the packet without an error (rp_filter, no forwarding)."""

    HERE = "this node"
    OUT = "out"
    NOWHERE = "nowhere"
    BLACKHOLE = "blackhole"
    PROHIBITED = "prohibited"
    REJECTED = "rejected"


class Route(Struct, frozen=True):
    """The result of a route lookup. source: the node's address for its own packets. reason, cure: why no route leads
    there, and what to do."""

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
    """How two hosts behind one interface reach each other: routed by this node; over a bridge of this node through its
    rules (br_netfilter) or past them; or without this node."""

    HERE = "here"
    FILTERED = "filtered"
    BRIDGED = "bridged"
    PAST = "past"


class Leg(Struct, frozen=True):
    """A packet as the routing sees it. interface: by which it came in; empty if the node sends it. port, source_port: 0
    if unknown."""

    destination: str
    source: str = ""
    interface: str = ""
    protocol: Protocol = Protocol.TCP
    port: int = 0
    mark: int = 0
    source_port: int = 0


class Router(Interface):
    """Knows the routes of the node, its interfaces and its sockets."""

    def route(self, leg: Leg) -> Route:
        """Returns the route of a packet."""
        ...

    def listens(self, address: str, port: int, protocol: Protocol, *, exactly: bool = False) -> bool:
        """Returns whether a program of the node listens there. exactly: bound to exactly this address."""
        ...

    def between(self, interface: str, family: Family) -> Between:
        """Returns how packets go between two hosts behind the same interface."""
        ...

    def bridge_of(self, address: str) -> str:
        """Returns the bridge behind which a host without a route is; empty if there is no such bridge. Bridged packets
        need no route."""
        ...

    def back_by_port(self, route: Route, destination: str) -> Route:
        """Returns the route of a packet that goes back to where it came from, or why its bridge does not send it back."""
        ...

    def barred(self, interface: str, address: str) -> Route | None:
        """Returns a rejecting route if a bridge's VLANs separate this node from a host behind it; else None."""
        ...

    def width(self, interface: str) -> int:
        """Returns the longest packet that an interface accepts, in bytes; 0 if unknown."""
        ...

    def beyond(self, route: Route, destination: str) -> Route:
        """Returns the same route, or why no host answers at its end."""
        ...
