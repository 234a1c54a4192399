"""Health check ports over real connections: what is answered, which listeners there are, what happens to busy ports."""

import asyncio
import json
import resource
import time
from collections.abc import Mapping
from typing import Any

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import HealthCheck, NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.proxy.observe.service_health import ServiceHealth
from nodeagent.runtime.serving.http import listening_socket

LOOPBACK = ("127.0.0.1/32", "::1/128")
ADDRESSES = ("127.0.0.1", "127.0.0.2", "::1")


BOTH = dict.fromkeys(Family, TableReport())


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def service(name: str, port: int, ipv4: int | None = 1, ipv6: int | None = None, created: str = "") -> ServiceState:
    counts = {Family.IPV4: ipv4, Family.IPV6: ipv6}
    check = HealthCheck(port, {family: count for family, count in counts.items() if count is not None})
    return ServiceState(key(name), created, health_check=check)


def passed(
    *services: ServiceState,
    gone: tuple[str, ...] = (),
    cidrs: tuple[str, ...] = LOOPBACK,
    families: Mapping[Family, TableReport] = BOTH,
) -> PassReport:
    changed: dict[ObjectKey, ServiceState | None] = {state.key: state for state in services}
    changed.update(dict.fromkeys(map(key, gone)))
    return PassReport(0.0, 0.0, families, changed, node=NodeState(node_port_cidrs=cidrs))


class Bench:
    """A ServiceHealth on a node with these addresses."""

    def __init__(self, addresses: tuple[str, ...] = ADDRESSES) -> None:
        self.healthy = True
        self.problems: tuple[Problem, ...] = ()
        self.reports = 0
        self.part = ServiceHealth(
            is_healthy=lambda: self.healthy, report=self.report, retry_seconds=0.02, spacing_seconds=0.01
        )
        self.part.node_addresses_changed(addresses)

    def report(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        self.reports += 1


async def is_open(port: int, host: str = "127.0.0.1") -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


async def becomes_open(port: int, host: str = "127.0.0.1", *, wanted: bool = True) -> None:
    async with asyncio.timeout(60):
        while await is_open(port, host) is not wanted:  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("local", "healthy", "status", "body"),
    [
        pytest.param(
            2, True, 200,
            b'{"service":{"namespace":"default","name":"web"},"localEndpoints":2,"serviceProxyHealthy":true}',
            id="endpoints and healthy",
        ),
        pytest.param(
            0, True, 503,
            b'{"service":{"namespace":"default","name":"web"},"localEndpoints":0,"serviceProxyHealthy":true}',
            id="no local endpoint",
        ),
        pytest.param(
            2, False, 503,
            b'{"service":{"namespace":"default","name":"web"},"localEndpoints":2,"serviceProxyHealthy":false}',
            id="unhealthy: the weight is reported nevertheless",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/healthz", "/any/thing?at=all"])
def test_the_answer_on_any_path(
    path: str, local: int, healthy: bool, status: int, body: bytes, get: Any, running: Any, free_ports: Any
) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.healthy = healthy
        (port,) = free_ports(1)
        async with running(bench.part.run()):
            bench.part.passed(passed(service("web", port, local)))
            await becomes_open(port)
            reply = await get(port, path)
        assert (reply.status, reply.body) == (status, body)
        assert reply.headers.pop("Date")
        assert reply.headers == {
            "Content-Type": "application/json",
            "X-Content-Type-Options": "nosniff",
            "X-Load-Balancing-Endpoint-Weight": str(local),
            "Server": "nodeagent",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }

    asyncio.run(scenario())


def test_each_family_has_its_own_count_and_listener(get: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        port, single = free_ports(2)
        async with running(bench.part.run()):
            bench.part.passed(passed(service("web", port, 2, 0), service("ipv4", single, 1)))
            await becomes_open(port, "::1")
            await becomes_open(single)
            assert json.loads((await get(port)).body)["localEndpoints"] == 2
            ipv6 = await get(port, host="::1")
            assert (ipv6.status, json.loads(ipv6.body)["localEndpoints"]) == (503, 0)
            assert not await is_open(single, "::1")

    asyncio.run(scenario())


def test_counts_change_without_a_new_listener(get: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        (port,) = free_ports(1)
        async with running(bench.part.run()):
            bench.part.passed(passed(service("web", port, 1)))
            await becomes_open(port)
            bench.part.passed(passed(service("web", port, 0)))
            assert (await get(port)).status == 503, "from the moment the pass is over"
            bench.part.passed(passed(service("web", port, 3)))
            assert (await get(port)).headers["X-Load-Balancing-Endpoint-Weight"] == "3"

    asyncio.run(scenario())


def test_a_port_that_changes_or_goes_is_closed(running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        first, second = free_ports(2)
        async with running(bench.part.run()):
            bench.part.passed(passed(service("web", first)))
            await becomes_open(first)
            bench.part.passed(passed(service("web", second)))
            await becomes_open(second)
            await becomes_open(first, wanted=False)
            bench.part.passed(passed(ServiceState(key("web"))))
            await becomes_open(second, wanted=False)
            bench.part.passed(passed(service("web", first)))
            await becomes_open(first)
            bench.part.passed(passed(gone=("web",)))
            await becomes_open(first, wanted=False)
        assert bench.problems == ()

    asyncio.run(scenario())


def test_closing_a_port_ends_its_connections_and_no_others(running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        going, staying = free_ports(2)
        request = b"GET / HTTP/1.1\r\nHost: probe\r\n\r\n"
        async with running(bench.part.run()):
            bench.part.passed(passed(service("a", going), service("b", staying)))
            await becomes_open(going)
            await becomes_open(staying)
            probes = [await asyncio.open_connection("127.0.0.1", port) for port in (going, staying)]
            for reader, writer in probes:
                writer.write(request)
                await reader.readuntil(b"}")
                await reader.readuntil(b"}")
            bench.part.passed(passed(gone=("a",)))
            async with asyncio.timeout(60):
                assert await probes[0][0].read() == b""
            probes[1][1].write(request)
            assert await probes[1][0].readuntil(b"}")
            for _, writer in probes:
                writer.close()

    asyncio.run(scenario())


def test_nothing_listens_before_its_family_is_programmed(running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        (port,) = free_ports(1)
        failing = {Family.IPV4: TableReport(), Family.IPV6: TableReport(error="no such thing")}
        async with running(bench.part.run()):
            bench.part.passed(passed(service("web", port, 1, 1), families=failing))
            await becomes_open(port)
            assert not await is_open(port, "::1")
            bench.part.passed(passed())
            await becomes_open(port, "::1")

    asyncio.run(scenario())


def test_a_busy_port_is_a_problem_until_it_is_free(get: Any, until: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        busy, other = free_ports(2)
        blocker = listening_socket("127.0.0.1", busy)
        async with running(bench.part.run()):
            bench.part.passed(passed(service("web", busy), service("fine", other)))
            await becomes_open(other)
            await until(lambda: bool(bench.problems))
            detail = f"cannot listen on port {busy} (127.0.0.1: Address already in use); tried again every 0.02 seconds"
            assert bench.problems == (Problem("Service default/web", "FailedToStartServiceHealthcheck", detail),)
            blocker.close()
            await until(lambda: not bench.problems)
            assert json.loads((await get(busy)).body)["service"]["name"] == "web"
        assert bench.reports == 2, "reported when it came and when it went, not at every attempt"

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [70000, -1, 65536])
def test_a_number_that_is_no_port_is_the_services_problem(
    wrong: int, get: Any, until: Any, running: Any, free_ports: Any
) -> None:
    """From a manifest or a hostile server; the ports of others go on."""

    async def scenario() -> None:
        bench = Bench()
        (port,) = free_ports(1)
        bench.part.passed(passed(service("bad", wrong), service("good", port)))
        async with running(bench.part.run()) as task:
            await until(lambda: bool(bench.problems))
            await becomes_open(port)
            assert [str(problem) for problem in bench.problems] == [
                f"Service default/bad: FailedToStartServiceHealthcheck: health check port {wrong} is not a port number"
            ]
            bench.part.passed(passed(gone=("bad",)))
            await until(lambda: not bench.problems)
            assert (await get(port)).status == 200
            assert not task.done()

    asyncio.run(scenario())


def test_the_service_leaves_while_its_port_is_busy(until: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        (busy,) = free_ports(1)
        with listening_socket("127.0.0.1", busy):
            async with running(bench.part.run()):
                bench.part.passed(passed(service("web", busy)))
                await until(lambda: bool(bench.problems))
                bench.part.passed(passed(gone=("web",)))
                await until(lambda: not bench.problems)
        listening_socket("127.0.0.1", busy).close()

    asyncio.run(scenario())


def test_of_two_services_with_one_port_the_oldest_answers(get: Any, until: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        (port,) = free_ports(1)
        async with running(bench.part.run()):
            bench.part.passed(passed(service("new", port, created="2026-01-02T00:00:00Z")))
            await becomes_open(port)
            bench.part.passed(passed(service("old", port, created="2026-01-01T00:00:00Z")))
            assert json.loads((await get(port)).body)["service"]["name"] == "old"
            await until(lambda: bool(bench.problems))
            detail = f"health check port {port} belongs to Service default/old"
            assert bench.problems == (Problem("Service default/new", "FailedToStartServiceHealthcheck", detail),)
            bench.part.passed(passed(gone=("old",)))
            assert json.loads((await get(port)).body)["service"]["name"] == "new"
            await until(lambda: not bench.problems)

    asyncio.run(scenario())


def test_listeners_follow_the_addresses_of_the_node(until: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench(("127.0.0.1",))
        (port,) = free_ports(1)
        both = ("127.0.0.1/32", "127.0.0.2/32")
        async with running(bench.part.run()):
            bench.part.passed(passed(service("web", port), cidrs=both))
            await becomes_open(port, "127.0.0.1")
            assert not await is_open(port, "127.0.0.2")
            bench.part.node_addresses_changed(["127.0.0.1", "127.0.0.2"])
            await becomes_open(port, "127.0.0.2")
            bench.part.node_addresses_changed(["127.0.0.2"])
            await becomes_open(port, "127.0.0.1", wanted=False)
            assert await is_open(port, "127.0.0.2")
            bench.part.passed(passed(cidrs=("127.0.0.3/32",)))
            await becomes_open(port, "127.0.0.2", wanted=False)
            await until(lambda: bool(bench.problems))
            assert "no IPv4 address of this node answers node ports" in bench.problems[0].detail
            bench.part.node_addresses_changed(["127.0.0.3"])
            await becomes_open(port, "127.0.0.3")
            await until(lambda: not bench.problems)

    asyncio.run(scenario())


def test_an_address_list_without_a_match_is_reported_when_the_addresses_are_known(until: Any, running: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        part = ServiceHealth(is_healthy=lambda: True, report=bench.report)
        async with running(part.run()):
            part.passed(passed(service("web", 1), cidrs=("192.0.2.0/24",)))
            part.node_addresses_changed(["127.0.0.1"])
            await until(lambda: bool(bench.problems))

    asyncio.run(scenario())


def test_the_end_closes_every_port(running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        bench = Bench()
        ports = free_ports(3)
        async with running(bench.part.run()):
            bench.part.passed(passed(*(service(f"s{port}", port) for port in ports)))
            for port in ports:
                await becomes_open(port)
        for port in ports:
            listening_socket("127.0.0.1", port).close()

    asyncio.run(scenario())


@pytest.fixture
def room_for_sockets() -> None:
    """As the agent does at start."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def test_a_thousand_services(get: Any, until: Any, running: Any, free_ports: Any, room_for_sockets: None) -> None:
    """Opened in seconds; the next one costs what the first did, and the loop is never held for long."""

    async def scenario() -> None:
        bench = Bench()
        *ports, last = free_ports(1001)
        longest = 0.0

        async def watch_the_loop() -> None:
            nonlocal longest
            while True:
                before = time.thread_time()  # others may have the processor meanwhile
                await asyncio.sleep(0)
                longest = max(longest, time.thread_time() - before)

        async with running(bench.part.run()):
            bench.part.passed(passed(*(service(f"s{port}", port, 1, 1) for port in ports)))
            async with running(watch_the_loop()):
                await becomes_open(ports[-1], "::1")
                for port in ports:
                    await becomes_open(port, "::1")
            assert longest < 0.5
            began = time.thread_time()
            bench.part.passed(passed(service("last", last)))
            noted = time.thread_time() - began
            await becomes_open(last)
            assert noted < 0.05, "a tenth of what a thousand take"
            assert (await get(ports[500], host="::1")).status == 200
        assert bench.problems == ()

    asyncio.run(scenario())
