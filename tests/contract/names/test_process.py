"""The DNS process as the agent runs it: real processes and sockets on loopback."""

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import dns.asyncquery
import dns.message
import dns.rcode
import pytest

from nodeagent.model import objects as model
from nodeagent.model.name_counts import NameCounts
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, ObjectMeta, Service, ServicePort, ServiceSpec
from nodeagent.model.problem import Problem
from nodeagent.names.feed.cluster_dns import listening_places
from nodeagent.names.feed.dns_supervisor import Supervisor
from nodeagent.names.feed.feed_messages import PROCESS_USER, Report, Settings
from nodeagent.names.feed.feeder import Feeder
from nodeagent.names.feed.meeting import request_end
from nodeagent.names.feed.sockets import ListenAddress
from nodeagent.names.upstream.upstream_address import Server
from tests.harness.dns.reference import RecordedObjects, answers, differences, packet_of
from tests.harness.free_ports import free_ports

WEB = "web.shop.svc.cluster.local."
DEADLINE_SECONDS = 60.0


class Objects:
    """Services without endpoints, as a snapshot."""

    def __init__(self) -> None:
        self.node: model.Node | None = None
        self.service_cidrs: tuple[model.ServiceCIDR, ...] = ()
        self.services: dict[ObjectKey, Service] = {}

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        return ()

    def put(self, name: str, address: str) -> ObjectKey:
        key = ObjectKey("shop", name)
        spec = ServiceSpec(cluster_ip=address, cluster_ips=(address,), ports=(ServicePort(80, "http"),))
        self.services[key] = Service(ObjectMeta(name=name, namespace="shop"), spec)
        return key


class Node:
    """An agent's part in names: its objects, and a supervisor that can be ended and started again."""

    def __init__(self, path: Path, place: ListenAddress) -> None:
        self.place = place
        self.objects = Objects()
        self.settings = Settings(version="1", zones=("cluster.local",), log_every=1)
        self.counts = NameCounts()
        self._path = path
        self.problems: tuple[Problem, ...] = ()
        self.all_problems: set[Problem] = set()
        self.answering: list[tuple[bool, int]] = []
        """What was said of answers, each time with the process that was looked after."""
        self._task: asyncio.Task[None] | None = None

    def start(self, *, listed: bool = True) -> Supervisor:
        """What an agent does that starts, whether another one is there or not."""
        self.feeder = Feeder(self.objects, wall=time.time)
        self.supervisor = Supervisor(
            self._path / "dns.sock",
            (self.place,),
            self.settings,
            self.feeder,
            on_problems=self._hear,
            on_report=self._count,
            on_answering=self._note,
        )
        self._task = asyncio.create_task(self.supervisor.run())
        if listed:
            self.feeder.passed(None)
        return self.supervisor

    def _count(self, report: Report) -> None:
        self.counts = report.counts

    def _note(self, answering: bool) -> None:
        self.answering.append((answering, self.supervisor.pid))

    def _hear(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        self.all_problems.update(problems)

    async def stop(self) -> None:
        """What is left when an agent ends."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def ask(self, name: str = WEB, kind: str = "A", *, timeout_s: float = 10.0) -> str:
        """The data of the first record, or the rcode; an empty text for no reply."""
        query = dns.message.make_query(name, kind)
        try:
            reply = await dns.asyncquery.udp(query, self.place.address, timeout=timeout_s, port=self.place.port)
        except (dns.exception.Timeout, OSError):
            return ""
        return reply.answer[0][0].to_text() if reply.answer else dns.rcode.to_text(reply.rcode())

    async def until_said(self, expected: str, name: str = WEB) -> float:
        """Wait until a name is answered so; how long it took."""
        start = time.monotonic()
        while (said := await self.ask(name, timeout_s=2.0)) != expected:
            assert time.monotonic() < start + DEADLINE_SECONDS, f"{name} is {said!r}, not {expected!r}"
        return time.monotonic() - start


async def end(node: Node) -> None:
    pid = node.supervisor.pid
    await node.stop()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        await asyncio.to_thread(os.waitpid, pid, 0)


@asynccontextmanager
async def a_node(path: Path, kind: type[Node] = Node) -> AsyncIterator[Node]:
    node = kind(path, ListenAddress("127.0.0.1", free_ports(1)[0]))
    node.objects.put("web", "10.96.0.1")
    node.start()
    try:
        yield node
    finally:
        await until(lambda: node.supervisor.pid)
        await end(node)


async def until_asked_to_end(path: Path) -> None:
    """What `nodeagent cleanup` says to the process."""
    connection = await request_end(path / "dns.sock")
    assert connection is not None
    connection.close()


async def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def run(scene: Callable[[Node], Coroutine[None, None, None]], path: Path) -> None:
    async def whole() -> None:
        async with a_node(path) as node:
            await scene(node)

    asyncio.run(whole())


def test_a_change_is_answered_after_its_pass_and_not_before(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        key = node.objects.put("web", "10.96.0.2")
        await asyncio.sleep(0.05)
        assert await node.ask() == "10.96.0.1"
        node.feeder.passed({key})
        await node.until_said("10.96.0.2")
        del node.objects.services[key]
        node.feeder.passed({key})
        await node.until_said("NXDOMAIN")

    run(scene, tmp_path)


def test_a_killed_process_is_replaced_without_a_lost_query(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        enough = asyncio.Event()
        asked = [asyncio.create_task(keep_asking(node, enough)) for _ in range(4)]
        for _ in range(2):
            pid: int = node.supervisor.pid
            os.kill(pid, signal.SIGKILL)
            await until(lambda: node.supervisor.pid not in (0, pid))  # noqa: B023  # awaited before it changes
            await node.until_said("10.96.0.1")
        enough.set()
        assert sum(await asyncio.gather(*asked)) > 4

    run(scene, tmp_path)


async def keep_asking(node: Node, enough: asyncio.Event) -> int:
    """Ask again and again; how often. A query that the process had read when it was killed may be lost: its client asks
    once more."""
    count = 0
    while not enough.is_set():
        said = await node.ask(timeout_s=DEADLINE_SECONDS / 6) or await node.ask(timeout_s=DEADLINE_SECONDS / 6)
        assert said == "10.96.0.1"
        count += 1
    return count


def test_the_process_answers_while_no_agent_is_there_and_is_adopted_by_the_next(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        pid = node.supervisor.pid
        await node.stop()
        assert await node.ask() == "10.96.0.1"
        node.objects.put("web", "10.96.0.3")
        node.start(listed=False)
        await until(lambda: node.supervisor.pid)
        assert node.supervisor.pid == pid
        assert await node.ask() == "10.96.0.1"
        node.feeder.passed(None)
        await node.until_said("10.96.0.3")

    run(scene, tmp_path)


def test_the_addresses_of_names_are_known_while_a_process_answers(tmp_path: Path) -> None:
    """And what a killed process left misleads neither the next agent nor those who ask where to ask."""
    file, sock = tmp_path / "dns.listen", tmp_path / "dns.sock"
    file.write_text("192.0.2.1:53\n")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(sock))
    assert listening_places(sock) == ()

    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        assert listening_places(sock) == (Server(*node.place),)
        await node.stop()
        assert listening_places(sock) == (Server(*node.place),)
        os.kill(node.supervisor.pid, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, node.supervisor.pid, 0)
        assert listening_places(sock) == ()
        node.start()
        await node.until_said("10.96.0.1")

    run(scene, tmp_path)


def test_other_settings_mean_another_process_with_the_same_sockets(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        pid = node.supervisor.pid
        await node.stop()
        node.settings = Settings(version="2", zones=("cluster.local", "other.test"))
        node.start()
        await node.until_said("10.96.0.1", "web.shop.svc.other.test.")
        assert await node.ask() == "10.96.0.1"
        assert node.supervisor.pid != pid
        await asyncio.to_thread(os.waitpid, pid, 0)

    run(scene, tmp_path)


def test_a_process_that_gets_sigterm_is_replaced(tmp_path: Path) -> None:
    """The signal may come from anybody, or from the previous agent: then the next agent meets a process that only ends open work."""

    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        ended = node.supervisor.pid
        os.kill(ended, signal.SIGTERM)
        await until(lambda: node.supervisor.pid not in (0, ended))
        await node.until_said("10.96.0.1")

        await node.stop()
        ended = node.supervisor.pid
        await until_asked_to_end(tmp_path)
        node.start()
        await until(lambda: node.supervisor.pid not in (0, ended))
        await node.until_said("10.96.0.1")

    run(scene, tmp_path)


def test_a_process_that_is_ending_does_not_promise_answers_to_the_next_agent(tmp_path: Path) -> None:
    """Who is promised them sends queries there, and a moment later has to send them elsewhere."""

    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        await node.stop()
        ended = node.supervisor.pid
        await until_asked_to_end(tmp_path)
        node.answering.clear()
        node.start()
        await until(lambda: node.supervisor.pid)
        assert node.supervisor.pid != ended
        await until(lambda: any(answering for answering, pid in node.answering if pid != ended))
        assert [answering for answering, _ in node.answering].count(True) == 1

    run(scene, tmp_path)


def test_an_agent_whose_process_another_one_took_ends_in_peace(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        first = node._task
        pid = node.supervisor.pid
        node.start()
        assert first is not None
        await asyncio.wait_for(first, DEADLINE_SECONDS)
        await until(lambda: node.supervisor.pid)
        assert node.supervisor.pid == pid
        await node.until_said("10.96.0.1")

    run(scene, tmp_path)


def test_the_agent_receives_counts_and_log_lines_of_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        await until(lambda: any(one.kind == "A" and one.rcode == "NOERROR" for one in node.counts.replies))
        assert node.counts.pid == node.supervisor.pid
        assert node.counts.services == 1
        await until(lambda: f" A {WEB} udp NOERROR " in caplog.text)

    with caplog.at_level("INFO", logger="nodeagent.dns.queries"):
        run(scene, tmp_path)


def test_the_process_has_no_rights(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        status = await asyncio.to_thread(Path(f"/proc/{node.supervisor.pid}/status").read_text)
        words = {line.split(":")[0]: line.split(":")[1].split() for line in status.splitlines()}
        if os.geteuid() == 0:
            assert words["Uid"] == words["Gid"] == [str(PROCESS_USER)] * 4
            assert words["Groups"] == []
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert int(words[name][0], 16) == 0
        assert words["NoNewPrivs"] == ["1"]

    run(scene, tmp_path)


def test_an_address_that_is_taken_is_a_problem_and_tried_again(tmp_path: Path) -> None:
    async def whole() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            node = Node(tmp_path, ListenAddress("127.0.0.1", taken.getsockname()[1]))
            node.start()
            await until(lambda: node.problems)
        assert node.problems[0].reason == "CannotListen"
        assert f"{node.place}: Address already in use" in node.problems[0].detail
        node.objects.put("web", "10.96.0.1")
        await node.until_said("10.96.0.1")
        await until(lambda: not node.problems)
        await end(node)

    asyncio.run(whole())


def test_a_directory_in_which_nothing_can_be_made_is_a_problem_and_tried_again(tmp_path: Path) -> None:
    async def whole() -> None:
        (directory := tmp_path / "run").touch()
        node = Node(directory, ListenAddress("127.0.0.1", free_ports(1)[0]))
        node.objects.put("web", "10.96.0.1")
        node.start()
        await until(lambda: node.problems)
        assert (node.problems[0].reason, str(directory) in node.problems[0].detail) == ("CannotStart", True)
        directory.unlink()
        await node.until_said("10.96.0.1")
        await until(lambda: not node.problems)
        await end(node)

    asyncio.run(whole())


def test_many_queries_in_one_connection_are_answered(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        # Made first: a connection on which no query comes for three seconds is closed.
        packets = [dns.message.make_query(WEB, "A", id=number).to_wire() for number in range(500)]
        reader, writer = await asyncio.open_connection(*node.place)
        writer.write(b"".join(len(packet).to_bytes(2, "big") + packet for packet in packets))
        idents = set()
        for _ in packets:
            size = int.from_bytes(await reader.readexactly(2), "big")
            reply = dns.message.from_wire(await reader.readexactly(size))
            assert reply.answer[0][0].to_text() == "10.96.0.1"
            idents.add(reply.id)
        assert idents == set(range(500))
        writer.close()

    run(scene, tmp_path)


def test_a_connection_that_stalls_is_closed(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said("10.96.0.1")
        for beginning in (b"", b"\0\x30half a query"):
            reader, writer = await asyncio.open_connection(*node.place)
            writer.write(beginning)
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert await reader.read() == b""
            writer.close()

    run(scene, tmp_path)


class Recorded(Node):
    """A node with the recorded objects."""

    def start(self, *, listed: bool = True) -> Supervisor:
        recorded = RecordedObjects()
        self.feeder = Feeder(recorded, wall=time.time, namespaces=lambda: recorded.namespaces)
        self.supervisor = Supervisor(self._path / "dns.sock", (self.place,), self.settings, self.feeder)
        self._task = asyncio.create_task(self.supervisor.run())
        self.feeder.passed(None)
        return self.supervisor


def test_recorded_answers_come_out_of_the_process_by_udp_and_tcp(tmp_path: Path) -> None:
    """A sample by real sockets; all of them are compared without a process in tests/unit/names."""
    own = [one for one in answers() if one["level"] != "odd" and "AA" in one["answer"].get("flags", ())]
    own = [one for one in own if "externalname" not in one["case"] and "EXT" not in str(one["query"])]

    async def whole() -> None:
        async with a_node(tmp_path, Recorded) as node:
            await node.until_said("10.96.1.1")
            for record in random.Random(1).sample(own, 100):
                query = packet_of(record["query"], 7)
                ask = ask_by_tcp if record["transport"] == "tcp" else ask_by_udp
                assert not differences(record, await asyncio.to_thread(ask, node.place, query)), record["id"]

    asyncio.run(whole())


def ask_by_udp(place: ListenAddress, query: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(place)
        sock.settimeout(DEADLINE_SECONDS)
        sock.send(query)
        return sock.recv(65535)


def ask_by_tcp(place: ListenAddress, query: bytes) -> bytes:
    with socket.create_connection(place, DEADLINE_SECONDS) as sock, sock.makefile("rb") as stream:
        sock.sendall(len(query).to_bytes(2, "big") + query)
        return stream.read(int.from_bytes(stream.read(2), "big"))
