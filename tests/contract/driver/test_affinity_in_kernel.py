"""What clients learned: forgotten beside the passes when their endpoint left, kept when a table is rebuilt."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.model.frontend import NodeState, Scope, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import KernelUnclear
from nodeagent.proxy.dataplane.image.affinity import affinity_id
from nodeagent.proxy.dataplane.image.image import endpoint_value, packed_class, packed_protocol
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
OWNERSHIPS = pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
HOUR = 3_600_000
ADDRESSES = {
    Family.IPV4: ("10.96.0.10", "10.244.2.1", "10.244.2.2"),
    Family.IPV6: ("fd00:10:96::10", "fd00:244:2::1", "fd00:244:2::2"),
}


def sticky(service: MakeService, family: Family, *endpoints: str) -> ServiceState:
    return service("web", ADDRESSES[family][0], *endpoints, affinity=10800)


def learn(kernel: Any, agent: Any, clients: range, endpoint: str, remaining: Callable[[int], int]) -> set[bytes]:
    """As if these clients had connected; remaining: milliseconds by number of the client."""
    family: Family = agent.driver.family
    port = ServicePortName(ObjectKey("default", "web"), "http", Protocol.TCP)
    number = packed_class(affinity_id(port, Scope.CLUSTER))
    first = int.from_bytes(pack_address("203.0.0.0" if family is Family.IPV4 else "2001:db8::"), "big")
    learned = {
        (first + client).to_bytes(family.address_length, "big") + packed_protocol(Protocol.TCP) + number: (
            endpoint_value(endpoint, 8080),
            3 * HOUR,
            remaining(client),
        )
        for client in clients
    }
    transaction = Transaction(family, agent.driver._specs)
    transaction.restore_affinity(learned)
    kernel.run(lambda: agent.socket.commit(transaction))
    return set(learned)


def long(client: int) -> int:
    return HOUR


@FAMILIES
@OWNERSHIPS
def test_entries_that_expire_meanwhile_do_not_keep_others(
    kernel: Any, service: MakeService, family: Family, ownership: Ownership
) -> None:
    """Every second entry expires within the purge, at any moment of it."""
    _, leaving, staying = ADDRESSES[family]
    agent = kernel.start(ownership, family)
    agent.sync(sticky(service, family, leaving, staying))
    agent.purge()
    kept = learn(kernel, agent, range(100), staying, long)
    learn(kernel, agent, range(1000, 11000), leaving, lambda client: client % 997 if client % 2 else HOUR)

    report = agent.sync(sticky(service, family, staying))
    assert report.touched <= 4
    assert agent.purge()

    assert set(kernel.elements(schema.AFFINITY, family)) == kept
    (purged,) = agent.purges
    assert purged.forgotten >= 5000
    assert agent.sync().messages == 0
    assert not agent.changed_by_others()


def test_fifty_thousand_clients_are_forgotten_while_passes_go_on(kernel: Any, service: MakeService) -> None:
    _, leaving, staying = ADDRESSES[Family.IPV4]
    agent = kernel.start()
    six = kernel.start(family=Family.IPV6, socket=agent.socket)
    agent.sync(sticky(service, Family.IPV4, leaving, staying))
    agent.purge()
    six.sync()
    learn(kernel, agent, range(50_000), leaving, lambda client: client // 10 if client % 3 == 0 else HOUR)

    async def story() -> tuple[int, float]:
        await agent.driver.sync({state.key: state for state in [sticky(service, Family.IPV4, staying)]}, NodeState())
        purging = asyncio.create_task(agent.driver.purge())
        passes, longest = 0, 0.0
        while not purging.done():
            began = time.monotonic()
            for driver, address in ((agent.driver, "10.96.0.77"), (six.driver, "fd00:10:96::77")):
                pod = f"10.244.3.{passes % 200 + 1}" if address.startswith("10.") else f"fd00:244:3::{passes % 200 + 1}"
                changed = service("busy", address, pod)
                assert (await driver.sync({changed.key: changed}, NodeState())).messages
                assert not await driver.changed_by_others()
            longest = max(longest, time.monotonic() - began)
            passes += 1
            await asyncio.sleep(0.01)
        assert purging.result()
        return passes, longest

    passes, longest = kernel.run(lambda: asyncio.run(story()))

    assert kernel.elements(schema.AFFINITY) == {}
    (purged,) = agent.purges
    print(f"{purged}; {passes} passes meanwhile, the longest {longest * 1000:.0f} ms")
    assert purged.forgotten > 25_000
    assert passes > 3


def test_a_purge_that_fails_is_wanted_still(kernel: Any, service: MakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    _, leaving, staying = ADDRESSES[Family.IPV4]
    agent = kernel.start(Ownership.OWNED)
    agent.sync(sticky(service, Family.IPV4, leaving, staying))
    agent.purge()
    learn(kernel, agent, range(10), leaving, long)
    agent.sync(sticky(service, Family.IPV4, staying))
    with monkeypatch.context() as broken:
        broken.setattr(agent.socket, "commit", raising(KernelUnclear("no answer")))
        assert not agent.purge()
    assert len(kernel.elements(schema.AFFINITY)) == 10

    async def beside_the_passes() -> None:
        agent.purged = asyncio.Event()
        task = asyncio.create_task(agent.driver.run_purge())
        await agent.purged.wait()
        task.cancel()

    kernel.run(lambda: asyncio.run(asyncio.wait_for(beside_the_passes(), 30)))
    assert kernel.elements(schema.AFFINITY) == {}


def raising(error: Exception) -> Callable[..., None]:
    def raise_it(*_: object) -> None:
        raise error

    return raise_it


def test_an_endpoint_that_came_back_before_it_was_forgotten_keeps_its_clients(
    kernel: Any, service: MakeService
) -> None:
    _, leaving, staying = ADDRESSES[Family.IPV4]
    agent = kernel.start()
    agent.sync(sticky(service, Family.IPV4, leaving, staying))
    kept = learn(kernel, agent, range(10), leaving, long)
    agent.sync(sticky(service, Family.IPV4, staying))
    agent.sync(sticky(service, Family.IPV4, leaving, staying))

    assert agent.purge()
    assert set(kernel.elements(schema.AFFINITY)) == kept


@FAMILIES
@OWNERSHIPS
def test_a_table_rebuilt_after_failures_remembers_clients_of_endpoints_that_serve(
    kernel: Any, service: MakeService, family: Family, ownership: Ownership, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, leaving, staying = ADDRESSES[family]
    agent = kernel.start(ownership, family)
    agent.sync(sticky(service, family, leaving, staying))
    kept = learn(kernel, agent, range(50), staying, long)
    learn(kernel, agent, range(50, 80), leaving, long)
    handle = kernel.contents(family).header.handle
    with monkeypatch.context() as broken:
        broken.setattr(agent.socket, "commit", raising(KernelUnclear("no answer")))
        for _ in range(3):
            with pytest.raises(KernelUnclear):
                agent.sync(sticky(service, family, staying))

    assert agent.sync().new_table

    assert kernel.contents(family).header.handle != handle
    assert set(kernel.elements(schema.AFFINITY, family)) == kept
    remaining = kernel.expirations(family)
    assert all(timeout == 3 * HOUR and HOUR - 120_000 < left <= HOUR for timeout, left in remaining.values())


@OWNERSHIPS
def test_a_table_of_another_shape_leaves_its_clients_to_the_new_one(
    kernel: Any, service: MakeService, ownership: Ownership
) -> None:
    """Without counters the sets have another shape: the table is rebuilt."""
    state = sticky(service, Family.IPV4, *ADDRESSES[Family.IPV4][1:])
    first = kernel.start(ownership)
    first.sync(state)
    kept = learn(kernel, first, range(50), ADDRESSES[Family.IPV4][1], long)
    first.die()

    second = kernel.start(ownership, options=ProgramOptions(PodDetection.CIDR, counters=False))

    assert second.sync(state).new_table
    assert set(kernel.elements(schema.AFFINITY)) == kept
