"""Servers say that they live; the `kubernetes` Service has those that do as endpoints, and a server that stops saying so is forgotten."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from nodeagent.apiserver.address_objects import AddressObjects
from nodeagent.apiserver.addresses.allocation import Allocator
from nodeagent.apiserver.addresses.ranges import parse_port_range, parse_service_ranges
from nodeagent.apiserver.addresses.service_ranges import ServiceRanges
from nodeagent.apiserver.api_server import SystemRandomSource
from nodeagent.apiserver.bootstrap import bootstrap
from nodeagent.apiserver.controllers.kubernetes_service import KEY, KubernetesService
from nodeagent.apiserver.live_servers import MASTER_LEASES, SERVERS, AdvertisedAddress
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.machinery.request_worker import Worker
from nodeagent.apiserver.service_writes import writes_by_collection
from nodeagent.apiserver.storage.records import Change, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.catalog import all_kinds
from tests.harness.shared_memory import Clock, Member, SharedMemory, run

RANGES = parse_service_ranges("10.96.0.0/12")


class Servers:
    """Servers on one storage, as far as the `kubernetes` Service goes."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.memory = SharedMemory()
        self.on_etcd = False
        self._stack = stack
        self._members: dict[str, Member] = {}
        self._tasks: dict[str, list[asyncio.Task[Any]]] = {}
        self.store = Store(self.memory.member(), clock=Clock().time)

    async def start(self, address: str, port: int = 6443, **options: str) -> None:
        clock = Clock()
        member = self._members[address] = self.memory.member()
        member.remote = self.on_etcd
        store = await self._stack.enter_async_context(Store(member, clock=clock.time))
        kinds, chance = all_kinds(), SystemRandomSource()
        objects = AddressObjects(chance.uid, clock.time)
        ranges = ServiceRanges(store, RANGES)
        kept = {RANGES[0].first: KEY}
        allocator = Allocator(store, ranges, parse_port_range("30000-32767"), chance, objects.describe, kept=kept)
        registry = Registry(
            store, kinds, writes_by_collection(kinds, allocator), chance=chance, clock=clock.time, worker=Worker()
        )
        await bootstrap(store, registry, kinds, RANGES, clock.time)
        advertised = AdvertisedAddress(address, port)
        service = KubernetesService(
            store, registry, kinds, address=RANGES[0].first, advertised=advertised, options=options
        )
        self._tasks[address] = [
            asyncio.create_task(service.keep_registered()),
            asyncio.create_task(service.controller().run()),
            asyncio.create_task(_catch_up(store)),
        ]

    async def stop(self, address: str) -> None:
        tasks = self._tasks.pop(address)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def kill(self, address: str) -> None:
        self._members[address].cut = True
        await self.stop(address)

    async def end(self) -> None:
        for address in list(self._tasks):
            await self.stop(address)

    @property
    def endpoints(self) -> list[str]:
        record = self.store.get("endpoints", KEY)
        subsets = record.document().get("subsets") or [] if record is not None else []
        return [
            f"{address['ip']}:{subset['ports'][0]['port']}" for subset in subsets for address in subset["addresses"]
        ]

    @property
    def in_slices(self) -> dict[str, list[str]]:
        found = {}
        for record in self.store.collection("endpointslices").records.values():
            document = record.document()
            port = document["ports"][0]["port"]
            found[record.name] = [f"{one['addresses'][0]}:{port}" for one in document["endpoints"] or []]
        return found

    async def until(self, seconds: float, *expected: str) -> None:
        """Endpoints and the slice are as expected, within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                while (self.endpoints, self.in_slices.get("kubernetes")) != (list(expected), list(expected)):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{self.endpoints} {self.in_slices}, not {expected}") from None


async def _catch_up(store: Store) -> None:
    while True:
        await asyncio.sleep(0.1)
        await store.catch_up()


def scene(play: Any) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            servers = Servers(stack)
            await stack.enter_async_context(servers.store)
            try:
                await play(servers)
            finally:
                await servers.end()

    run(scenario())


A, B, C = "192.0.2.1", "192.0.2.2", "192.0.2.3"
ALL = (f"{A}:6443", f"{B}:6443", f"{C}:6443")


async def three(servers: Servers) -> None:
    for address in (A, B, C):
        await servers.start(address)
    await servers.until(1, *ALL)


def test_all_servers_are_endpoints_and_then_nobody_writes() -> None:
    async def play(servers: Servers) -> None:
        await three(servers)
        written = sum(row.collection in ("endpoints", "endpointslices") for row in servers.memory.rows)
        await asyncio.sleep(120)
        again = sum(row.collection in ("endpoints", "endpointslices") for row in servers.memory.rows)
        assert (servers.endpoints, again) == (list(ALL), written)

    scene(play)


@pytest.mark.parametrize("instant", [0.0, 1.9, 3.99, 4.01, 50.0])
def test_a_killed_server_leaves_within_15_seconds(instant: float) -> None:
    async def play(servers: Servers) -> None:
        await three(servers)
        await asyncio.sleep(instant)
        await servers.kill(A)
        assert servers.endpoints == list(ALL)
        await servers.until(15, *ALL[1:])

    scene(play)


def test_a_stopped_server_leaves_at_once_and_comes_back_at_once() -> None:
    async def play(servers: Servers) -> None:
        await three(servers)
        await servers.stop(B)
        await servers.until(0.02, ALL[0], ALL[2])
        await servers.start(B)
        await servers.until(0.1, *ALL)

    scene(play)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_address_of_the_last_server_stays_until_another_lives(how: str) -> None:
    """An agent that reaches the API server through the Service would not find it again."""

    async def play(servers: Servers) -> None:
        await servers.start(A)
        await servers.until(1, ALL[0])
        await getattr(servers, how)(A)
        await asyncio.sleep(60)
        await servers.until(1, ALL[0])
        await servers.start(B)
        await servers.until(13, ALL[1])

    scene(play)


def test_servers_that_differ_in_their_port_do_not_undo_what_the_other_wrote() -> None:
    async def play(servers: Servers) -> None:
        await servers.start(A, 6443)
        await servers.start(B, 7443)
        await asyncio.sleep(1)
        assert servers.endpoints == [f"{A}:6443", f"{B}:7443"]
        assert servers.in_slices == {"kubernetes": [f"{A}:6443"], "kubernetes-port-7443": [f"{B}:7443"]}
        count = len([row for row in servers.memory.rows if row.collection == "endpointslices"])
        await asyncio.sleep(30)
        assert len([row for row in servers.memory.rows if row.collection == "endpointslices"]) == count
        await servers.stop(B)
        await asyncio.sleep(1)
        assert servers.in_slices == {"kubernetes": [f"{A}:6443"]}

    scene(play)


def test_loopback_addresses_are_not_published_to_others() -> None:
    async def play(servers: Servers) -> None:
        await servers.start("127.0.0.1", 6443)
        await servers.start("127.0.0.2", 7443)
        await asyncio.sleep(1)
        assert (servers.endpoints, servers.in_slices) == ([], {"kubernetes": []})
        count = len(servers.memory.rows)
        await asyncio.sleep(30)
        assert [row.collection for row in servers.memory.rows[count:] if row.collection != SERVERS] == []

    scene(play)


@pytest.mark.parametrize("what", ["endpoints", "endpointslices"])
def test_a_foreign_record_is_corrected(what: str) -> None:
    async def play(servers: Servers) -> None:
        await three(servers)
        record = servers.store.get(what, KEY)
        assert record is not None
        document = record.document()
        if what == "endpoints":
            document["subsets"][0]["addresses"].pop()
        else:
            document["endpoints"].pop()
        await servers.store.commit([Change(what, KEY, record.revision, draft(document))])
        await servers.until(1, *ALL)

    scene(play)


def test_a_server_says_its_address_and_port() -> None:
    async def play(servers: Servers) -> None:
        await servers.start(A)
        await servers.until(1, ALL[0])
        record = servers.store.get(SERVERS, A)
        assert record is not None
        assert record.document()["subsets"] == [
            {"addresses": [{"ip": A}], "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}
        ]

    scene(play)


def master_lease(address: str, generation: int = 1, seconds: float = 15.0) -> Change:
    """As a kube-apiserver writes it."""
    document = {
        "metadata": {"generation": generation, "resourceVersion": "0"},
        "subsets": [{"addresses": [{"ip": address}]}],
    }
    return Change(MASTER_LEASES, address, None, draft(document), seconds=seconds)


def test_on_an_etcd_kube_apiservers_are_among_the_endpoints_as_long_as_their_leases_last() -> None:
    async def play(servers: Servers) -> None:
        servers.on_etcd = True
        await servers.start(B)
        await servers.until(1, ALL[1])
        for generation in range(1, 4):
            await servers.store.commit([master_lease(A, generation)])
            await servers.until(1, *ALL[:2])
            await asyncio.sleep(10)
        await servers.until(16, ALL[1])

    scene(play)


def test_on_an_etcd_a_server_has_a_master_lease_that_ends_with_it() -> None:
    async def play(servers: Servers) -> None:
        servers.on_etcd = True
        await servers.start(A)
        await servers.start(B)
        await servers.until(1, *ALL[:2])
        leases = servers.store.collection(MASTER_LEASES).records
        assert set(leases) == {A, B}
        document = leases[A].document()
        del document["metadata"]["resourceVersion"]
        assert document == {"metadata": {}, "subsets": [{"addresses": [{"ip": A}]}]}
        await servers.stop(A)
        await servers.until(1, ALL[1])
        assert set(leases) == {B}
        await servers.kill(B)
        await asyncio.sleep(13)
        await servers.store.catch_up()
        assert not leases

    scene(play)


def test_two_servers_at_one_address_share_its_master_lease() -> None:
    async def play(servers: Servers) -> None:
        servers.on_etcd = True
        await servers.start(A)
        await servers.start(B)
        body = draft(AdvertisedAddress(A, 7443).lease())
        await servers.store.commit([Change(SERVERS, f"{A}:7443", None, body)])
        await asyncio.sleep(2)
        assert servers.endpoints == [*ALL[:2], f"{A}:7443"]
        await servers.stop(A)
        assert set(servers.store.collection(MASTER_LEASES).records) == {A, B}

    scene(play)


def test_without_etcd_only_our_own_servers_count() -> None:
    async def play(servers: Servers) -> None:
        await servers.store.commit([master_lease(A)])
        await servers.start(B)
        await servers.until(1, ALL[1])
        assert set(servers.store.collection(MASTER_LEASES).records) == {A}

    scene(play)


def test_a_server_that_was_written_down_without_an_end_gets_one() -> None:
    """As earlier versions left it when they were killed."""

    async def play(servers: Servers) -> None:
        body = draft(AdvertisedAddress(A, 6443).lease())
        await servers.store.commit([Change(SERVERS, A, 0, body)])
        await asyncio.sleep(1000)
        await servers.store.catch_up()
        assert set(servers.store.collection(SERVERS).records) == {A}
        await servers.start(B)
        await servers.until(1, ALL[0], ALL[1])
        await servers.until(13, ALL[1])

    scene(play)


def test_servers_that_were_started_with_other_options_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    def said() -> list[str]:
        return [line.partition("server=")[2] for line in caplog.text.splitlines() if "another option" in line]

    async def play(servers: Servers) -> None:
        await servers.start("192.0.2.1", ports="1-2", balancers="")
        await servers.start("192.0.2.2", ports="1-2", balancers="")
        await servers.until(10, *ALL[:2])
        assert said() == []
        await servers.start("192.0.2.3", ports="1-3", balancers="")
        await servers.until(10, *ALL)
        await asyncio.sleep(20)
        assert sorted(said()) == [
            "192.0.2.1 option=ports there=1-2 here=1-3",
            "192.0.2.2 option=ports there=1-2 here=1-3",
            "192.0.2.3 option=ports there=1-3 here=1-2",
            "192.0.2.3 option=ports there=1-3 here=1-2",
        ]

    scene(play)
