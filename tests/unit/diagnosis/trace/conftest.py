"""A router of a few routes, and packets on their way."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Packet
from nodeagent.diagnosis.trace.routes import Between, Leg, Route, RouteOutcome
from nodeagent.diagnosis.trace.traveller import Traveller
from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.proxy.dataplane.program.chain import Program

NODE = {Family.IPV4: "192.168.0.2", Family.IPV6: "2001:db8::2"}


@dataclass
class Routes:
    """Pods are behind `cni0`, everybody else behind `eth0`; `blocked` destinations have no route."""

    blocked: frozenset[str] = frozenset()
    listening: bool = True
    way_between: Between = Between.HERE
    one_way_ports: frozenset[str] = frozenset()
    other_vlans: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    widths: dict[str, int] = field(default_factory=dict)
    asked: list[Leg] = field(default_factory=list)

    def route(self, leg: Leg) -> Route:
        self.asked.append(leg)
        if leg.destination in self.blocked:
            return Route(RouteOutcome.NOWHERE, reason=f"no route to {leg.destination}", cure="add one")
        if leg.destination == NODE[family_of(leg.destination)]:
            return Route(RouteOutcome.HERE, "lo")
        pod = leg.destination.startswith(("10.244.", "fd00:244:"))
        return Route(RouteOutcome.OUT, "cni0") if pod else Route(RouteOutcome.OUT, "eth0", "192.168.0.1")

    def listens(self, address: str, port: int, protocol: Protocol, *, exactly: bool = False) -> bool:
        return self.listening and not exactly

    def between(self, interface: str, family: Family) -> Between:
        return self.way_between

    def bridge_of(self, address: str) -> str:
        return ""

    def back_by_port(self, route: Route, destination: str) -> Route:
        return (
            Route(RouteOutcome.REJECTED, route.interface, reason="no hairpin")
            if destination in self.one_way_ports
            else route
        )

    def barred(self, interface: str, address: str) -> Route | None:
        barred = Route(RouteOutcome.REJECTED, interface, reason=f"{address} is in another VLAN", cure="add it")
        return barred if address in self.other_vlans else None

    def width(self, interface: str) -> int:
        return self.widths.get(interface, 1500)

    def beyond(self, route: Route, destination: str) -> Route:
        return (
            Route(RouteOutcome.NOWHERE, route.interface, reason="nobody answers") if destination in self.gone else route
        )


@pytest.fixture
def traveller() -> Callable[..., Traveller]:
    """A packet that came in: traveller(source=…, destination=…, port=…, protocol=…, iif=…, oif=…, mark=…)."""

    def make(
        source: str = "10.244.1.5",
        destination: str = "10.244.1.10",
        port: int = 8080,
        protocol: int = Protocol.TCP,
        *,
        iif: str = "cni0",
        oif: str = "eth0",
        mark: int = 0,
        local: tuple[str, ...] = tuple(NODE.values()),
    ) -> Traveller:
        packet = Packet(source, destination, protocol, port, iif=iif)
        machine = Interpreter(Program(packet.family, ()), {}, {}, local).machine(packet)
        return Traveller(packet, machine, iif, oif, back=iif, mark=mark)

    return make
