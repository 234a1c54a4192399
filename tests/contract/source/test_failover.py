"""Several servers in one configuration: who is asked when one refuses, forbids, stalls, breaks off or vanishes."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import pytest

from nodeagent.model.backoff import Backoff
from nodeagent.model.objects import Service
from nodeagent.proxy.source.api_source import ApiServerSource, StoreSink
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import ForbiddenError, KubeError, ServerUnreachableError
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, load_kubeconfig
from nodeagent.proxy.source.client.server_choice import Failover, Server
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.informer import Informer, Resource
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pace import AMONG_SEVERAL, Pace, Timing
from nodeagent.proxy.source.pulse import PROBE_PATH, Pulse
from tests.harness.warm_start import AGENT, WarmLauncher

SERVICES, PATH = "/api/v1/services", "/api/v1/things"
DEADLINE_SECONDS = 60.0
QUICK = Failover(connect=20.0, answer=20.0, home=3600.0)
STALLING = Failover(connect=20.0, answer=1.5, home=3600.0)
TIMING = Timing(backoff=Backoff(first_seconds=0.02, longest_seconds=0.2), healthy=0.05, silence=0.3, answer=2.0)
RESOURCE = Resource(Service, SERVICES)


class FakeServer(Protocol):
    url: str
    requests: list[Any]
    bodies: list[bytes]

    def reply(self, path: str, body: object, status: int = 200, headers: dict[str, str] | None = None) -> None: ...

    def stream(self, path: str, pieces: Iterable[bytes], end: str = "close", every_seconds: float = 0.0) -> None: ...

    def watches(self, path: str) -> list[dict[str, str]]: ...

    def lists(self, path: str) -> list[dict[str, str]]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


Servers = Callable[[], AbstractAsyncContextManager[FakeServer]]
Scenario = Callable[[ApiClient, FakeServer, FakeServer], Awaitable[None]]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  # what tests wait for has no event of its own
            await asyncio.sleep(0.005)


def in_order() -> Callable[[], float]:
    """Chance that leaves the servers in the order in which they are named."""
    numbers = iter(range(10**9))
    return lambda: next(numbers) / 10**9


def access_to(*urls: str) -> ClusterAccess:
    others = tuple(Server(url) for url in urls[1:])
    return ClusterAccess(urls[0], TlsTrust(), FixedCredential(), others=others)


def between(servers: Servers, play: Scenario, failover: Failover = QUICK) -> None:
    """A client whose home is the first of two servers."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            first, second = [await stack.enter_async_context(servers()) for _ in range(2)]
            access = access_to(first.url, second.url)
            client = await stack.enter_async_context(ApiClient(access, failover=failover, chance=in_order()))
            await play(client, first, second)

    asyncio.run(main())


def asked(server: FakeServer, path: str = PATH) -> int:
    return sum(found == path for found, _, _ in server.requests)


def test_one_in_use_is_kept_to(fake_api_server: Servers) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        for _ in range(5):
            first.reply(PATH, {"of": 1})
            await client.get(PATH)
        assert (asked(first), len(second.requests)) == (5, 0)

    between(fake_api_server, play)


def test_one_that_refuses_connections_is_passed_by_and_not_asked_again(fake_api_server: Servers) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        await first.stop()
        for n in range(3):
            second.reply(PATH, {"n": n})
            assert json.loads(await client.get(PATH)) == {"n": n}
        await first.start()
        second.reply(PATH, {"n": 3})
        await client.get(PATH)
        assert asked(first) == 0

    between(fake_api_server, play)


@pytest.mark.parametrize("status", [401, 403, 500, 502, 503, 504])
def test_where_one_refuses_another_is_asked_and_then_kept_to(fake_api_server: Servers, status: int) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        for _ in range(2):  # a 401 is tried once more with a fresh credential
            first.reply(PATH, {"kind": "Status", "code": status}, status)
        for _ in range(2):
            second.reply(PATH, {"of": 2})
            await client.get(PATH)
        assert asked(first) == (2 if status == 401 else 1)

    between(fake_api_server, play)


@pytest.mark.parametrize("status", [400, 404, 409, 410, 422, 429])
def test_an_answer_that_every_server_would_give_is_believed(fake_api_server: Servers, status: int) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        first.reply(PATH, {"kind": "Status", "code": status}, status)
        with pytest.raises(KubeError, match=str(status)):
            await client.get(PATH)
        assert second.requests == []

    between(fake_api_server, play)


def test_a_request_that_all_servers_refuse_moves_no_client(fake_api_server: Servers) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        for server in (first, second):
            server.reply(PATH, {"kind": "Status", "code": 403, "message": f"not at {server.url}"}, 403)
        with pytest.raises(ForbiddenError, match=first.url):
            await client.get(PATH)
        first.reply(PATH, {})
        await client.get(PATH)
        assert asked(second) == 1

    between(fake_api_server, play)


def test_the_error_of_the_only_live_server_is_reported(fake_api_server: Servers) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        await first.stop()
        second.reply(PATH, {"kind": "Status", "code": 403}, 403)
        with pytest.raises(ForbiddenError):
            await client.get(PATH)
        await second.stop()
        with pytest.raises(ServerUnreachableError):
            await client.get(PATH)

    between(fake_api_server, play)


@pytest.mark.parametrize("body", [False, True], ids=["before the answer", "within the answer"])
def test_one_that_stalls_is_left(fake_api_server: Servers, body: bool) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        if body:
            first.stream(PATH, [b"{"], end="hang")
            second.reply(PATH, {})
            with pytest.raises(ServerUnreachableError, match="no answer in time"):
                await client.get(PATH)
            await client.get(PATH)
        else:
            async with await asyncio.start_server(lambda *_: asyncio.sleep(DEADLINE_SECONDS), "127.0.0.1", 0) as deaf:
                url = f"http://127.0.0.1:{deaf.sockets[0].getsockname()[1]}"
                stalled = access_to(url, second.url)
                async with ApiClient(stalled, failover=STALLING, chance=in_order()) as other:
                    second.reply(PATH, {"of": 2})
                    assert json.loads(await other.get(PATH)) == {"of": 2}
        assert asked(second) == 1

    between(fake_api_server, play, STALLING)


def test_a_slow_answer_that_goes_on_is_waited_for(fake_api_server: Servers) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        first.stream(PATH, [b"[", b"1", b",", b"2", b"]"], every_seconds=0.6)
        assert await client.get(PATH) == b"[1,2]"
        assert second.requests == []

    between(fake_api_server, play, Failover(answer=2.5))


def test_a_write_that_may_have_been_carried_out_is_not_sent_to_another(fake_api_server: Servers) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        first.reply(PATH, {"kind": "Status", "code": 500}, 500)
        with pytest.raises(KubeError, match="500"):
            await client.request_json("POST", PATH, {})
        first.reply(PATH, {"kind": "Status", "code": 503}, 503)
        second.reply(PATH, {})
        await client.request_json("POST", PATH, {})
        assert (len(first.bodies), len(second.bodies)) == (2, 1)
        await first.stop()
        second.reply(PATH, {})
        async with ApiClient(access_to(first.url, second.url), failover=QUICK, chance=in_order()) as other:
            await other.request_json("POST", PATH, {})

    between(fake_api_server, play)


def test_streams_follow_and_in_time_all_go_home(fake_api_server: Servers) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        first.stream(SERVICES, [b"a"], end="hang")
        async with client.stream(SERVICES, ()) as pieces:
            assert await anext(pieces) == b"a"
            first.reply(PATH, {}, 503)
            second.reply(PATH, {})
            await client.get(PATH)
            with pytest.raises(ServerUnreachableError):
                await anext(pieces)
        for _ in range(2):
            first.reply("/readyz", {}, 500)
        second.stream(SERVICES, [b"b"], end="hang")
        async with client.stream(SERVICES, ()) as pieces:
            assert await anext(pieces) == b"b"
            await until(lambda: asked(first, "/readyz") == 2)
            first.reply("/readyz", b"ok")
            with pytest.raises(ServerUnreachableError):
                await anext(pieces)
        first.reply(PATH, {"of": 1})
        assert json.loads(await client.get(PATH)) == {"of": 1}
        assert asked(second, "/readyz") == 0

    between(fake_api_server, play, Failover(answer=20.0, home=0.05))


def service(name: str, version: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "demo", "resourceVersion": version}
    return {"metadata": meta, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def offer(server: FakeServer, version: str, *names: str) -> None:
    """A list, from a server without streaming lists."""
    server.reply(SERVICES, {"kind": "Status", "code": 422, "reason": "Invalid"}, 422)
    items = [service(name, version) for name in names]
    server.reply(SERVICES, {"metadata": {"resourceVersion": version}, "items": items})


class Deaf:
    def service_changed(self, key: object) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


def names(store: ClusterStore) -> list[str]:
    return sorted(key.name for key in store.services)


@asynccontextmanager
async def informed(client: ApiClient) -> AsyncIterator[ClusterStore]:
    """What an informer of services has in its store."""
    store = ClusterStore(Deaf())
    pace = Pace(random=lambda: 0.5, sleep=asyncio.sleep, timing=TIMING)
    pulse = Pulse(pace)
    informer = Informer(client, RESOURCE, StoreSink(store, Service), pace, pulse=pulse)
    tasks = [asyncio.create_task(informer.run()), asyncio.create_task(pulse.run(client))]
    try:
        yield store
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_watch_goes_on_at_another_server_from_its_revision(fake_api_server: Servers) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        offer(first, "5", "web")
        first.stream(SERVICES, [event("ADDED", service("shop", "7"))], end="hang")
        second.stream(SERVICES, [event("ADDED", service("late", "8"))], end="hang")
        async with informed(client) as store:
            await until(lambda: names(store) == ["shop", "web"])
            await first.stop()
            await until(lambda: names(store) == ["late", "shop", "web"])
            assert second.watches(SERVICES)[0]["resourceVersion"] == "7"
            assert second.lists(SERVICES) == []
            assert store.problems == ()

    between(fake_api_server, play)


def test_where_the_revision_is_gone_at_the_other_server_the_list_is_read_again(fake_api_server: Servers) -> None:
    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        offer(first, "5", "web")
        second.reply(SERVICES, {"kind": "Status", "code": 410, "reason": "Expired"}, 410)
        second.reply(SERVICES, {"metadata": {"resourceVersion": "9"}, "items": [service("new", "9")]})
        async with informed(client) as store:
            await until(lambda: names(store) == ["web"] and len(first.watches(SERVICES)) == 2)
            await first.stop()
            await until(lambda: names(store) == ["new"])

    between(fake_api_server, play)


def test_a_server_that_lags_behind_is_passed_by(fake_api_server: Servers) -> None:
    """One that has not seen the watch's revision yet says 504; another has."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            first, second, third = [await stack.enter_async_context(fake_api_server()) for _ in range(3)]
            access = access_to(first.url, second.url, third.url)
            client = await stack.enter_async_context(ApiClient(access, failover=QUICK, chance=in_order()))
            offer(first, "5", "web")
            causes = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
            second.reply(SERVICES, {"kind": "Status", "code": 504, "reason": "Timeout", "details": causes}, 504)
            third.stream(SERVICES, [event("ADDED", service("late", "8"))], end="hang")
            async with informed(client) as store:
                await until(lambda: names(store) == ["web"] and len(first.watches(SERVICES)) == 2)
                await first.stop()
                await until(lambda: names(store) == ["late", "web"])
                assert third.watches(SERVICES)[0]["resourceVersion"] == "5"

    asyncio.run(main())


def test_a_server_that_falls_silent_is_left_without_a_problem(fake_api_server: Servers) -> None:
    """It keeps its connections and answers nothing any more; 12 s at most, as the agent asks."""
    assert AMONG_SEVERAL.silence + AMONG_SEVERAL.answer <= 12

    async def play(client: ApiClient, first: FakeServer, second: FakeServer) -> None:
        offer(first, "5", "web")
        for _ in range(3):
            first.reply(PROBE_PATH, {})
        second.stream(SERVICES, [event("ADDED", service("late", "8"))], end="hang")
        first.stream(PROBE_PATH, [b"{"], end="hang")
        async with informed(client) as store:
            await until(lambda: names(store) == ["late", "web"])
            assert asked(first, PROBE_PATH) > 0
            assert store.problems == ()

    between(fake_api_server, play)


class Process:
    """An embedded API server on the store of a directory that others have, too."""

    def __init__(self, launcher: WarmLauncher, place: Path, name: str) -> None:
        self.kubeconfig = place / f"kubeconfig-{name}"
        options = ["--listen", "127.0.0.1:0", "--data-dir", str(place / "data")]
        options += ["--kubeconfig-out", str(self.kubeconfig)]
        with open(os.devnull, "wb") as nothing:
            self.process = launcher.start("", [*AGENT, "apiserver", *options], os.environ, nothing.fileno())

    @property
    def url(self) -> str:
        return load_kubeconfig(self.kubeconfig).server

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def manifest(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}


def test_two_servers_on_one_store_of_which_one_is_killed(tmp_path: Path, warm_launcher: WarmLauncher) -> None:

    async def main() -> None:
        with Started(warm_launcher) as started:
            first = started.start(tmp_path, "a")
            await until(first.kubeconfig.exists)
            second = started.start(tmp_path, "b")
            await until(second.kubeconfig.exists)
            access = load_kubeconfig(first.kubeconfig)
            both = ClusterAccess(access.server, access.trust, access.credentials, others=(Server(second.url),))
            alone = load_kubeconfig(second.kubeconfig)
            store = ClusterStore(Deaf())
            async with ApiClient(both, failover=QUICK, chance=in_order()) as client, ApiClient(alone) as writer:
                pace = Pace(random=lambda: 0.5, sleep=asyncio.sleep, timing=TIMING)
                source = ApiServerSource(client, store, node_name="n", endpoints_api="endpointslices", pace=pace)
                following = asyncio.create_task(source.run())
                try:
                    services = "/api/v1/namespaces/default/services"
                    await until(lambda: names(store) == ["kubernetes"])
                    await writer.request_json("POST", services, manifest("before"))
                    await until(lambda: "before" in names(store))
                    first.end()
                    await writer.request_json("POST", services, manifest("killed"))
                    await until(lambda: "killed" in names(store))
                finally:
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())


class Started:
    """Processes that end with the test."""

    def __init__(self, launcher: WarmLauncher) -> None:
        self._launcher = launcher
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.end()

    def start(self, place: Path, name: str) -> Process:
        self._processes.append(Process(self._launcher, place, name))
        return self._processes[-1]
