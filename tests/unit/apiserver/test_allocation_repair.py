"""What is recorded as allocated follows the Services: at an upgrade, beside servers of the previous version, after leaks."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from nodeagent.apiserver.addresses.allocation import NODE_PORT_RECORDS, Allocator, Reservation, Unavailable
from nodeagent.apiserver.addresses.port_bitmap import PortBitmap
from nodeagent.apiserver.addresses.ranges import PortRange, parse_service_ranges
from nodeagent.apiserver.addresses.service_ranges import ServiceRanges
from nodeagent.apiserver.controllers.repair import Repair
from nodeagent.apiserver.live_servers import SERVERS, AdvertisedAddress, has_predecessors
from nodeagent.apiserver.machinery import planned
from nodeagent.apiserver.machinery.planned import PlannedWrites
from nodeagent.apiserver.service_writes import ServiceWrites
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.records import Change, Precondition, StorageFull, StorageUnreachable, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.moments import rfc3339

PORTS = PortRange(30000, 30003)
NOW = 1_000_000.0


def describe(address: str, namespace: str, name: str) -> bytes:
    parent = {"resource": "services", "namespace": namespace, "name": name}
    meta = {"name": address, "resourceVersion": "0", "creationTimestamp": rfc3339(int(NOW))}
    return draft({"metadata": meta, "spec": {"parentRef": parent}})


def service(name: str, *node_ports: int) -> dict[str, Any]:
    ports = [{"port": 80, "protocol": "TCP", "nodePort": port} for port in node_ports]
    meta = {"name": name, "namespace": "demo", "resourceVersion": "0"}
    return {"metadata": meta, "spec": {"type": "NodePort", "clusterIPs": [], "ports": ports}}


def written(name: str, *node_ports: int) -> Change:
    return Change("services", f"demo/{name}", 0, draft(service(name, *node_ports)))


def record(port: int, holder: str) -> Change:
    """As the previous version wrote it."""
    body = draft({"metadata": {"name": str(port), "resourceVersion": "0"}, "holder": holder})
    return Change(NODE_PORT_RECORDS, str(port), 0, body)


def predecessor() -> Change:
    document = AdvertisedAddress("192.0.2.1", 6443).lease()
    del document["nodePorts"]
    return Change(SERVERS, "192.0.2.1", 0, draft(document))


def bitmap(*ports: int) -> Change:
    return Change("ranges", "servicenodeports", 0, PortBitmap.of(PORTS, ports).draft())


class Bench:
    """One server's allocations."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = NOW
        self.beside = False
        self.repair = Repair(store, describe, PORTS, lambda: self.now, is_beside_others=lambda: self.beside)
        ranges = ServiceRanges(store, parse_service_ranges("10.96.0.0/24"))
        self.allocator = Allocator(
            store, ranges, PORTS, Random(1), describe, has_predecessors=lambda: has_predecessors(store)
        )

    def recorded(self) -> list[int]:
        found = self.store.get("ranges", "servicenodeports")
        assert found is not None
        return list(PortBitmap.read(found.document()))

    def records(self) -> set[str]:
        return set(self.store.collection(NODE_PORT_RECORDS).records)

    async def take(self, port: int, holder: str = "demo/new") -> None:
        reservation = Reservation()
        self.allocator.take_port(reservation, port, holder)
        await self.store.commit([*self.allocator.record_ports(reservation), *reservation.changes])
        self.allocator.release(reservation)


def played(scenario: Callable[[Bench], Awaitable[None]], *before: Change) -> None:
    async def play() -> None:
        async with Store(Log(":memory:"), clock=time.time) as store:
            for change in before:
                await store.commit([change])
            await scenario(Bench(store))

    asyncio.run(play())


def test_an_upgrade_brings_every_node_port_along() -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(Unavailable):
            await bench.take(30002)
        await bench.repair.begin()
        assert bench.recorded() == [30000, 30001]
        assert bench.records() == set()
        for port in (30000, 30001):
            with pytest.raises(Unavailable):
                await bench.take(port)
        await bench.take(30002)
        assert bench.recorded() == [30000, 30001, 30002]

    played(scenario, written("a", 30000), record(30000, "demo/a"), written("b", 30001))


def test_beside_a_server_of_the_previous_version_both_records_count() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.repair.begin()
        await bench.store.commit([record(30001, "demo/theirs"), written("theirs", 30001)])
        with pytest.raises(Unavailable):
            await bench.take(30001)
        await bench.take(30002)
        await bench.store.commit([written("new", 30002)])
        assert bench.records() == {"30000", "30001", "30002"}, "what the other server looks at"
        gone = bench.store.get(SERVERS, "192.0.2.1")
        assert gone is not None
        await bench.store.commit([Change(SERVERS, gone.path, gone.revision, None)])
        await bench.repair.run_pass()
        assert bench.recorded() == [30000, 30001, 30002]
        assert bench.records() == set()

    played(scenario, predecessor(), written("a", 30000), record(30000, "demo/a"))


def test_an_address_that_no_service_holds_is_free_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.repair.begin()
        assert bench.recorded() == [30000]
        assert bench.store.get("ipaddresses", "10.96.0.7") is None

    address = Change("ipaddresses", "10.96.0.7", 0, describe("10.96.0.7", "demo", "gone"))
    played(scenario, bitmap(30000, 30003), written("a", 30000), address)


def test_a_port_without_a_service_is_free_after_several_passes() -> None:
    """A kube-apiserver takes a port before it writes the Service."""

    async def scenario(bench: Bench) -> None:
        bench.beside = True
        await bench.repair.begin()
        await bench.repair.run_pass()
        assert bench.recorded() == [30000, 30003]
        await bench.repair.run_pass()
        assert bench.recorded() == [30000]

    played(scenario, bitmap(30000, 30003), written("a", 30000))


def test_a_port_whose_service_comes_in_time_stays_taken() -> None:
    async def scenario(bench: Bench) -> None:
        bench.beside = True
        await bench.repair.begin()
        await bench.repair.run_pass()
        await bench.store.commit([written("late", 30003)])
        for _ in range(4):
            await bench.repair.run_pass()
        assert bench.recorded() == [30003]

    played(scenario, bitmap(30003))


def test_an_address_without_a_service_goes_once_it_is_old() -> None:
    async def scenario(bench: Bench) -> None:
        bench.beside = True
        await bench.repair.begin()
        assert bench.store.get("ipaddresses", "10.96.0.7") is not None
        bench.now += 61
        await bench.repair.run_pass()
        assert bench.store.get("ipaddresses", "10.96.0.7") is None

    played(scenario, Change("ipaddresses", "10.96.0.7", 0, describe("10.96.0.7", "demo", "coming")))


def test_a_server_with_another_range_gives_nothing_out_and_takes_back() -> None:
    other = PortBitmap.of(PortRange(30000, 30100), [30000, 30050])

    async def scenario(bench: Bench) -> None:
        with pytest.raises(Unavailable):
            await bench.take(30001)
        reservation = Reservation()
        bench.allocator.free_port(reservation, 30050, "demo/a")
        (change,) = bench.allocator.record_ports(reservation)
        assert change.body is not None
        assert change.frees

    played(scenario, Change("ranges", "servicenodeports", 0, other.draft()))


class Races(Store):
    """Another server changes the bitmap before each of the first commits."""

    def __init__(self, *interlopers: Change) -> None:
        super().__init__(Log(":memory:"), clock=time.time)
        self.interlopers = list(interlopers)
        self.commits: list[list[str]] = []

    async def commit(self, changes: Any) -> Any:
        self.commits.append([change.collection for change in changes])
        if self.interlopers and any(change.collection == "ranges" for change in changes):
            await super().commit([self.interlopers.pop(0)])
        return await super().commit(changes)


def plan_of(bench: Bench, name: str) -> tuple[ServiceWrites, Any, Change]:
    life = ServiceWrites(bench.allocator)
    document = service(name, 30001)
    document["spec"] |= {"ipFamilies": ["IPv4"]}
    plan = life.plan(document, None)
    return life, plan, Change("services", f"demo/{name}", 0, draft(document))


def raced(scenario: Callable[[Bench, Races], Awaitable[None]], *ports: int) -> None:
    """Others take these ports, one after the other."""

    async def play() -> None:
        taken = [PortBitmap.of(PORTS, ports[: count + 1]) for count in range(len(ports))]
        async with Races(*(Change("ranges", "servicenodeports", None, one.draft()) for one in taken)) as store:
            interlopers, store.interlopers = store.interlopers, []
            await store.commit([bitmap()])
            store.interlopers = interlopers
            await scenario(Bench(store), store)

    asyncio.run(play())


def test_a_lost_race_for_the_bitmap_is_run_again_while_the_port_is_free() -> None:
    async def scenario(bench: Bench, store: Races) -> None:
        life, plan, change = plan_of(bench, "a")
        written = await PlannedWrites(store, lambda: False).write(life, plan, change)
        assert written.path == "demo/a"
        assert bench.recorded() == [30000, 30001, 30002]

    raced(scenario, 30000, 30002)


def test_a_port_that_another_server_gave_away_is_not_given_twice() -> None:
    async def scenario(bench: Bench, store: Races) -> None:
        life, plan, change = plan_of(bench, "a")
        with pytest.raises(Precondition):
            await PlannedWrites(store, lambda: False).write(life, plan, change)
        assert store.get("services", "demo/a") is None
        assert bench.recorded() == [30001]

    raced(scenario, 30001)


def test_beside_a_kube_apiserver_addresses_come_first_and_go_again_where_the_service_is_refused() -> None:
    async def scenario(bench: Bench, store: Races) -> None:
        life, plan, change = plan_of(bench, "a")
        writes = PlannedWrites(store, lambda: True)
        store.commits.clear()
        await writes.write(life, plan, change)
        assert store.commits == [["ipaddresses"], ["services", "ranges"]]
        life.settle(plan)
        taken = set(store.collection("ipaddresses").records)
        life = ServiceWrites(bench.allocator)
        again = service("a")
        again["spec"] |= {"type": "ClusterIP", "ipFamilies": ["IPv4"]}
        plan = life.plan(again, None)
        with pytest.raises(Precondition):
            await writes.write(life, plan, Change("services", "demo/a", 0, draft(again)))
        assert set(store.collection("ipaddresses").records) == taken

    raced(scenario)


def test_a_write_waits_for_the_one_before_it_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "_TURN_SECONDS", 0.01)

    async def scenario(bench: Bench, store: Races) -> None:
        life, plan, change = plan_of(bench, "a")
        async with bench.allocator.port_turn:
            with pytest.raises(StorageUnreachable):
                await PlannedWrites(store, lambda: False).write(life, plan, change)
        await PlannedWrites(store, lambda: False).write(life, plan, change)
        assert bench.recorded() == [30001]

    raced(scenario)


class Full(Races):
    """As an etcd without space: a transaction that puts anything is refused."""

    full = False

    async def commit(self, changes: Any) -> Any:
        if self.full and any(change.body is not None for change in changes):
            raise StorageFull("full")
        return await super().commit(changes)


def test_an_etcd_without_space_lets_a_service_go_and_its_port_is_found_free_later() -> None:
    async def play() -> None:
        async with Full() as store:
            await store.commit([bitmap()])
            bench = Bench(store)
            life, plan, change = plan_of(bench, "a")
            written = await PlannedWrites(store, lambda: False).write(life, plan, change)
            life.settle(plan)
            store.full = True
            live = written.document()
            plan = life.plan(None, live)
            gone = Change("services", written.path, written.revision, None, written.body)
            await PlannedWrites(store, lambda: False).remove(life, plan, gone)
            assert store.get("services", "demo/a") is None
            assert not store.collection("ipaddresses").records
            assert bench.recorded() == [30001]
            store.full = False
            await bench.repair.run_pass()
            assert bench.recorded() == []

    asyncio.run(play())
