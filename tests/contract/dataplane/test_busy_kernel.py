"""A kernel that refuses, interrupts or loses one request in ten: the service interface ends with what it shall carry, and what is read
is complete."""

import asyncio
import random
from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.addresses import Protocol as IpProtocol
from nodeagent.model.frontend import Frontend, FrontendKind, Route
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane import conntrack_list, source_ports
from nodeagent.proxy.dataplane.conntrack_flows import tracked_flows
from nodeagent.proxy.dataplane.interface import ServiceInterface
from tests.harness.effort import SEED, examples
from tests.harness.kernel_faults import KernelFaults

pytestmark = pytest.mark.kernel

T = TypeVar("T")
VIPS = [f"10.96.0.{n}" for n in range(1, 9)] + [f"fd00:96::{n:x}" for n in range(1, 9)] + ["fd00:97::/112"]
PASSES = 8


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


async def passes(interface: ServiceInterface, chance: random.Random) -> None:
    """As the engine does it: small changes of what is known, a comparison with the kernel after what failed."""
    carried: frozenset[str] = frozenset()
    known = False
    for _ in range(PASSES):
        wanted = frozenset(chance.sample(VIPS, chance.randrange(len(VIPS))))
        for _ in range(20):
            try:
                if known:
                    report = await interface.apply(wanted - carried, carried - wanted)
                else:
                    report = await interface.sync(wanted)
            except OSError:
                known = False
                continue
            if known := report.complete:
                break
        assert known, report
        carried = wanted
        assert await interface.read() == wanted


@pytest.mark.parametrize("seed", range(examples(6)))
def test_the_interface_carries_the_wanted_addresses_in_the_end(namespace: Namespace, seed: int) -> None:
    """An interface with a name of its own can only be recognised by its mark."""

    async def story() -> None:
        interface = ServiceInterface("vips", address_limits=dict.fromkeys(Family, 3))
        await passes(interface, random.Random(seed))
        await interface.remove()
        assert not await interface.exists()

    with KernelFaults(seed + SEED).opened():
        namespace.run(lambda: asyncio.run(story()))


def track_two_flows(namespace: Namespace, answered_to: str) -> None:
    """From 10.0.0.1 to a Service. answered_to: their source after translation."""
    for port in (1001, 1002):
        namespace.shell(
            f"conntrack -I -p udp -s 10.0.0.1 -d 10.96.0.1 --sport {port} --dport 53"
            f" -r 10.244.0.6 -q {answered_to} --reply-port-src 5353 --reply-port-dst {port} -t 100"
        )


def test_the_flows_of_a_service_are_counted(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conntrack_list, "FEW_FLOWS", 0)
    name = ServicePortName(ObjectKey("kube-system", "dns"), "dns", IpProtocol.UDP)
    frontend = Frontend(FrontendKind.CLUSTER_IP, Family.IPV4, "10.96.0.1", IpProtocol.UDP, 53, name, Route(()))
    track_two_flows(namespace, "10.0.0.1")
    faults = KernelFaults(SEED)
    with faults.opened():
        for _ in range(examples(50)):
            found = namespace.run(lambda: tracked_flows(Family.IPV4, [frontend]))
            assert found == {"10.244.0.6:5353": 2}
    assert faults.counts, "else nothing is shown"


def test_the_source_ports_are_counted(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_ports, "ports_may_be_scarce", lambda: True)
    monkeypatch.setattr(source_ports, "is_scarce", lambda count: count == 2)
    track_two_flows(namespace, "10.0.0.9")
    faults = KernelFaults(SEED)
    with faults.opened():
        for _ in range(examples(50)):
            found = namespace.run(lambda: source_ports.read_port_shortages(Family.IPV4, IpProtocol.UDP))
            assert [(one.source, one.endpoint) for one in found] == [("10.0.0.9", ("10.244.0.6", 5353))]
    assert faults.counts, "else nothing is shown"
