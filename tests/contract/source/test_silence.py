"""Servers that stop answering while every connection stays open: how soon that is noticed, and what is not mistaken."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self

import pytest

from nodeagent.lab.net.namespace_process import Running
from nodeagent.model.backoff import Backoff
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.source.api_source import ApiServerSource
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, load_kubeconfig
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pace import Pace, Timing
from nodeagent.proxy.source.pulse import PROBE_PATH, Pulse, Rhythm
from tests.harness.stopwatch import once_within
from tests.harness.warm_start import AGENT, WarmLauncher
from tests.unit.proxy.engine.virtual_time import run_in_virtual_time

SERVICES, NODES = "/api/v1/services", "/api/v1/nodes"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
QUICK = Timing(backoff=Backoff(first_seconds=0.02, longest_seconds=0.2), healthy=0.05, silence=0.2, answer=0.4)
DEADLINE_SECONDS = 60.0


class Server(Protocol):
    url: str
    requests: list[Any]

    def reply(self, path: str, body: object, status: int = 200, headers: dict[str, str] | None = None) -> None: ...

    def stream(self, path: str, pieces: Iterable[bytes], end: str = "close", every_seconds: float = 0.0) -> None: ...

    def hold(self, path: str, until: asyncio.Event) -> None: ...

    def watches(self, path: str) -> list[dict[str, str]]: ...

    def lists(self, path: str) -> list[dict[str, str]]: ...


Servers = Callable[[], AbstractAsyncContextManager[Server]]


class Relay:
    """In front of a server. While it stalls it takes connections, keeps them, and forwards nothing."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._server: asyncio.Server | None = None
        self._forwards = asyncio.Event()
        self._forwards.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stall(self) -> None:
        self._forwards.clear()

    def go_on(self) -> None:
        self._forwards.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await self._forwards.wait()
        back, forth = await asyncio.open_connection("127.0.0.1", self._port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump(reader, forth))
            tasks.create_task(self._pump(back, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                while piece := await reader.read(65536):
                    await self._forwards.wait()
                    writer.write(piece)
        finally:
            writer.close()


class Deaf:
    def service_changed(self, key: ObjectKey) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  # what tests wait for has no event of its own
            await asyncio.sleep(0.01)


@asynccontextmanager
async def followed(access: ClusterAccess, timing: Timing) -> AsyncIterator[ClusterStore]:
    """What a source that follows this server has in its store."""
    store = ClusterStore(Deaf())
    pace = Pace(random=lambda: 0.5, sleep=asyncio.sleep, timing=timing)
    async with ApiClient(access) as client:
        source = ApiServerSource(client, store, node_name="n1", endpoints_api="endpointslices", pace=pace)
        task = asyncio.create_task(source.run())
        try:
            yield store
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def at(url: str) -> ClusterAccess:
    return ClusterAccess(url, TlsTrust(), FixedCredential())


def service(name: str, version: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "demo", "resourceVersion": version}
    return {"metadata": meta, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def offer(server: Server) -> None:
    """Full lists of everything, from a server without streaming lists."""
    for path in (SERVICES, SLICES, NODES, CIDRS):
        server.reply(path, {"kind": "Status", "code": 422, "reason": "Invalid"}, 422)
        items = [service("web", "1")] if path == SERVICES else [{"metadata": {"name": "n1"}}] if path == NODES else []
        server.reply(path, {"metadata": {"resourceVersion": "5"}, "items": items})


def names(store: ClusterStore) -> list[str]:
    return sorted(key.name for key in store.services)


def watched(server: Server) -> int:
    """How many watches from a known version have been asked for."""
    return sum(
        "resourceVersion" in query for path in (SERVICES, SLICES, NODES, CIDRS) for query in server.watches(path)
    )


def test_a_server_that_stalls_is_noticed_and_followed_again_when_it_goes_on(fake_api_server: Servers) -> None:
    async def main() -> None:
        async with fake_api_server() as server, Relay(server.url) as relay, followed(at(relay.url), QUICK) as store:
            offer(server)
            await until(lambda: watched(server) == 4)
            await until(lambda: (names(store), store.problems) == (["web"], ()))
            relay.stall()
            stalled = monotonic()
            await until(lambda: len(store.problems) == 4)
            assert monotonic() - stalled > QUICK.answer / 2, "it may have been asked just before"
            assert {problem.reason for problem in store.problems} == {"ServerUnreachable"}
            assert "no sign of life" in store.problems[0].detail
            assert names(store) == ["web"], "the last state stays in force"
            for _ in range(200):  # what was asked and given up meanwhile arrives now, too
                server.stream(SERVICES, [event("ADDED", service("late", "6"))], end="hang")
            relay.go_on()
            await until(lambda: names(store) == ["late", "web"] and store.problems == ())

    asyncio.run(main())


def test_one_that_stalls_before_it_answers_is_noticed_as_soon(
    fake_api_server: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    """Where an answer is waited for a minute, as long as there are signs of life."""

    async def main() -> None:
        goes_on = asyncio.Event()
        async with fake_api_server() as server, followed(at(server.url), QUICK) as store:
            offer(server)
            for path in (SLICES, NODES, CIDRS):
                server.hold(path, goes_on)
            for _ in range(200):
                server.hold(PROBE_PATH, goes_on)
            server.reply(SERVICES, {"kind": "Status", "code": 410, "reason": "Expired"}, 410)
            server.hold(SERVICES, goes_on)
            server.reply(SERVICES, {"metadata": {"resourceVersion": "5"}, "items": []})
            await until(lambda: all(len(server.watches(path)) > 2 for path in (SLICES, NODES, CIDRS)))
            await until(lambda: len(server.lists(SERVICES)) > 2)
            goes_on.set()
            await until(lambda: store.problems == ())

    asyncio.run(main())
    lost = re.findall("resource=(.*) error=no sign of life", caplog.text)
    assert set(lost) == {"services", "endpointslices", "nodes", "servicecidrs"}


@pytest.mark.parametrize("status", [200, 401, 403, 404, 500])
def test_a_server_that_has_nothing_to_say_is_asked_and_believed(fake_api_server: Servers, status: int) -> None:
    """Whatever it answers: not every cluster lets everybody read its version."""

    async def main() -> None:
        timing = replace(QUICK, late=60.0, answer=60.0)
        async with fake_api_server() as server, followed(at(server.url), timing) as store:
            offer(server)
            for _ in range(100):
                server.reply(PROBE_PATH, {}, status)
            await until(lambda: watched(server) == 4)
            await until(lambda: sum(path == PROBE_PATH for path, _, _ in server.requests) >= 6)
            assert watched(server) == 4
            assert store.problems == ()

    asyncio.run(main())


def test_a_server_that_talks_is_not_asked(fake_api_server: Servers) -> None:
    """It talks for twice as long as it may be silent. On a busy machine a pause may be as long, but not each time."""

    async def asked() -> int:
        timing = Timing(silence=1.0, late=60.0, answer=60.0)
        async with fake_api_server() as server, followed(at(server.url), timing) as store:
            offer(server)
            changes = [event("MODIFIED", service("web", str(version))) for version in range(6, 46)]
            server.stream(SERVICES, [*changes, event("ADDED", service("last", "99"))], end="hang", every_seconds=0.05)
            await until(lambda: "last" in names(store))
            return sum(path == PROBE_PATH for path, _, _ in server.requests)

    once_within(0.5, lambda: asyncio.run(asked()), "questions to a server that talks")


@pytest.mark.parametrize("bookmarks", [True, False], ids=["after bookmarks", "without bookmarks"])
def test_one_watch_that_stalls_is_noticed_by_its_bookmarks(fake_api_server: Servers, bookmarks: bool) -> None:
    """The server as a whole is well: it answers, and other watches go on. Where no bookmarks came nothing is known."""
    timing = Timing(healthy=0.05, silence=0.2, answer=60.0, bookmark_silence=(3.0, 6.0))

    async def main() -> None:
        async with fake_api_server() as server, followed(at(server.url), timing) as store:
            offer(server)
            kind = "BOOKMARK" if bookmarks else "MODIFIED"
            server.stream(
                SERVICES, [event(kind, service("web", str(6 + n))) for n in range(4)], "hang", every_seconds=0.1
            )
            server.stream(SERVICES, [event("ADDED", service("missed", "10"))], end="hang")
            await until(lambda: watched(server) >= 4)
            if bookmarks:
                await until(lambda: "missed" in names(store))
                assert server.watches(SERVICES)[-1]["resourceVersion"] == "9"
            else:
                await until(lambda: sum(path == PROBE_PATH for path, _, _ in server.requests) >= 12)
                assert len(server.watches(SERVICES)) == 2
            assert store.problems == ()
            assert [len(server.watches(path)) for path in (SLICES, NODES)] == [2, 2]

    asyncio.run(main())


@contextmanager
def api_server(launcher: WarmLauncher, directory: Path) -> Iterator[tuple[Running, Path]]:
    """The embedded API server as a process of its own, and its kubeconfig."""
    kubeconfig = directory / "kubeconfig"
    options = ["--listen", "127.0.0.1:0", "--kubeconfig-out", str(kubeconfig)]
    with open(os.devnull, "wb") as nothing:
        process = launcher.start("", [*AGENT, "apiserver", *options], os.environ, nothing.fileno())
    try:
        yield process, kubeconfig
    finally:
        process.kill()
        process.wait()


def test_a_stopped_process_is_noticed_although_the_kernel_keeps_its_connections(
    tmp_path: Path, warm_launcher: WarmLauncher
) -> None:
    async def main() -> None:
        with api_server(warm_launcher, tmp_path) as (process, kubeconfig):
            await until(kubeconfig.exists)
            async with followed(load_kubeconfig(kubeconfig), QUICK) as store:
                await until(lambda: store.is_synced)
                os.kill(process.pid, signal.SIGSTOP)
                await until(lambda: any(problem.reason == "ServerUnreachable" for problem in store.problems))
                os.kill(process.pid, signal.SIGCONT)
                await until(lambda: not any(problem.reason == "ServerUnreachable" for problem in store.problems))

    asyncio.run(main())


def test_patience_with_a_watch_is_a_few_intervals_between_its_bookmarks() -> None:
    assert Rhythm(Timing()).patience_seconds is None
    rhythm = Rhythm(Timing())
    rhythm.begin(1000.0)
    rhythm.bookmark(1058.0)
    rhythm.bookmark(1118.0)
    assert rhythm.patience_seconds == 2.5 * 60.0
    rhythm.begin(1300.0)
    rhythm.bookmark(1301.0)
    assert rhythm.patience_seconds == 150.0, "a bookmark right before the end of a watch is no new rhythm"
    rhythm.bookmark(1601.0)
    assert rhythm.patience_seconds == 180.0, "one that was late does not make it endless"


def test_a_stalled_server_is_a_problem_in_ten_seconds_and_given_up_before_client_go_does() -> None:
    assert Timing().silence + Timing().late < 10.0
    assert Timing().longest_silence + Timing().answer <= 45.0


def test_a_server_that_answers_late_is_a_problem_meanwhile_and_its_watches_stay(fake_api_server: Servers) -> None:
    """An overloaded server would have to open all watches of all nodes again."""

    async def main() -> None:
        goes_on = asyncio.Event()
        timing = replace(QUICK, late=0.2, answer=60.0)
        async with fake_api_server() as server, followed(at(server.url), timing) as store:
            offer(server)
            for _ in range(100):
                server.hold(PROBE_PATH, goes_on)
            await until(lambda: watched(server) == 4)
            await until(lambda: len(store.problems) == 4)
            assert {problem.reason for problem in store.problems} == {"ServerUnreachable"}
            assert "no sign of life for 0.2 seconds" in store.problems[0].detail
            goes_on.set()
            await until(lambda: store.problems == ())
            assert watched(server) == 4

    asyncio.run(main())


def test_a_slow_server_is_probed_less_often() -> None:
    """Probes take a fiftieth of the time at most, so that nodes do not keep a server busy with them."""

    class Slow:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds
            self.asked: list[float] = []

        async def is_alive(self, path: str, seconds: float) -> bool:
            self.asked.append(asyncio.get_running_loop().time())
            await asyncio.sleep(self.seconds)
            return True

    async def gap(seconds: float) -> float:
        pulse, prober = Pulse(Pace(random=lambda: 0.0, sleep=asyncio.sleep)), Slow(seconds)
        running = asyncio.create_task(pulse.run(prober))
        async with asyncio.timeout(None) as limit:
            with pulse.listening(limit):
                await asyncio.sleep(100)
        running.cancel()
        return prober.asked[-1] - prober.asked[-2] - seconds

    for seconds, expected in ((0.01, 5.0), (0.2, 10.0), (3.0, 30.0)):
        found: list[float] = []

        async def main(seconds: float = seconds, found: list[float] = found) -> None:
            found.append(await gap(seconds))

        run_in_virtual_time(main())
        assert found == [pytest.approx(expected, rel=0.11)]
