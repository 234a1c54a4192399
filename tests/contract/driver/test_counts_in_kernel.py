"""Connections that come between the reading of a counter and the end of its element are counted for good."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import ServiceState
from nodeagent.model.reports import KernelCounts
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.kernel_counts import read_kernel_counts
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
OWNERSHIPS = pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
SHOP = {Family.IPV4: "10.96.0.10", Family.IPV6: "fd00:10:96::10"}
IDLE = {Family.IPV4: "10.96.0.11", Family.IPV6: "fd00:10:96::11"}
PODS = {Family.IPV4: ("10.244.2.1", "10.244.2.2"), Family.IPV6: ("fd00:244:2::1", "fd00:244:2::2")}
COUNTED = ProgramOptions(PodDetection.CIDR, endpoint_counters=True)


class BusyNode(Ruleset):
    """So many connections come right before each of the next commits."""

    def __init__(self) -> None:
        super().__init__()
        self.coming: list[int] = []
        self.commits = 0

    def commit(self, transaction: Transaction, known: int | None = None) -> list[bytes]:
        self.commits += 1
        for _ in range(self.coming.pop(0) if self.coming else 0):
            knock(self.family)
        return super().commit(transaction, known)

    family = Family.IPV4


def knock(family: Family) -> None:
    """The first packet of a connection from the node itself; nobody answers."""
    with socket.socket(socket.AF_INET if family is Family.IPV4 else socket.AF_INET6, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        client.connect_ex((SHOP[family], 80))


def counted(kernel: Any, agent: Any) -> tuple[int, int]:
    """Connections to the frontend, and to all endpoints, as a scrape says them."""
    found: KernelCounts = kernel.run(lambda: read_kernel_counts([agent.driver]))
    (frontends,) = [each for each in found.frontends if not each.node_ports]
    (endpoints,) = [each for each in found.endpoints if each.by_endpoint]
    return sum(count for count, _ in frontends.by_key.values()), sum(endpoints.by_endpoint.values())


@pytest.fixture
def busy(kernel: Any) -> BusyNode:
    kernel.command("ip", "link", "set", "lo", "up")
    kernel.command("ip", "route", "add", "local", "10.96.0.10", "dev", "lo")
    kernel.command("ip", "route", "add", "local", "fd00:10:96::10", "dev", "lo")
    made: BusyNode = kernel.run(BusyNode)
    return made


@FAMILIES
@OWNERSHIPS
@pytest.mark.parametrize("interrupted", [False, True], ids=["between passes", "within a pass"])
def test_an_agent_that_ends_leaves_all_connections_counted_to_the_next(
    kernel: Any, service: MakeService, busy: BusyNode, family: Family, ownership: Ownership, interrupted: bool
) -> None:
    busy.family = family
    agent = kernel.start(ownership, family, COUNTED, socket=busy)
    agent.sync(service("shop", SHOP[family], PODS[family][0]))
    kernel.run(lambda: knock(family))
    busy.coming = [4]
    agent.sync(service("shop", SHOP[family], *PODS[family]))
    kernel.run(lambda: knock(family))
    assert counted(kernel, agent) == (6, 6)

    if interrupted:
        agent.driver.forget()
    busy.coming = [2]
    kernel.run(lambda: asyncio.run(agent.driver.settle_counts()))
    commits = busy.commits
    kernel.run(lambda: asyncio.run(agent.driver.settle_counts()))
    assert busy.commits == commits, "nothing is left to settle"
    assert counted(kernel, agent) == (8, 8)
    agent.die()

    successor = kernel.start(ownership, family, COUNTED)
    assert successor.sync(service("shop", SHOP[family], *PODS[family])).touched == 0
    assert counted(kernel, successor) == (8, 8)


def test_a_node_that_is_never_quiet_does_not_keep_its_agent_from_ending(
    kernel: Any, service: MakeService, busy: BusyNode
) -> None:
    agent = kernel.start(options=COUNTED, socket=busy)
    agent.sync(service("shop", SHOP[Family.IPV4], PODS[Family.IPV4][0]))
    quiet = busy.commits
    busy.coming = [1] * 100
    agent.sync(service("shop", SHOP[Family.IPV4], *PODS[Family.IPV4]))
    kernel.run(lambda: asyncio.run(agent.driver.settle_counts()))
    assert busy.commits < quiet + 10
    assert counted(kernel, agent) == (busy.commits - quiet,) * 2


@FAMILIES
def test_counters_of_some_elements_are_those_of_the_whole_map(
    kernel: Any, service: MakeService, busy: BusyNode, family: Family
) -> None:
    """They are read by the places of their bytes, and the whole map attribute by attribute."""
    busy.family = family
    agent = kernel.start(family=family, options=COUNTED, socket=busy)
    agent.sync(service("shop", SHOP[family], *PODS[family]), service("idle", IDLE[family], *PODS[family]))
    for _ in range(3):
        kernel.run(lambda: knock(family))
    agent.sync(service("shop", SHOP[family], PODS[family][0]))  # begins with the count of the element before
    table = KernelTable(busy, family, {spec.name: spec for spec in COUNTED.specs().values()})
    whole = kernel.run(table.counts)

    assert {name: len(found) for name, found in whole.items() if found} == {"frontends": 2, "backends": 3}
    assert sorted(packets for packets, _ in whole["frontends"].values()) == [0, 3]
    assert all(size for packets, size in whole["frontends"].values() if packets)
    some = {name: list(found) for name, found in whole.items()}
    assert kernel.run(lambda: table.counts(some)) == {name: found for name, found in whole.items() if found}
