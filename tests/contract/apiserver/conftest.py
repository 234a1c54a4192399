"""A server of its own for each test module, and a client that speaks to it as the recorder of the exchanges did."""

import asyncio
import http.client
import itertools
import json
import re
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from nodeagent.apiserver.api_server import ApiServer
from nodeagent.apiserver.server_settings import ServerSettings
from nodeagent.apiserver.storages import EtcdSettings
from nodeagent.proxy.source.mirror import mirror_endpoints
from tests.harness.effort import AT_LENGTH, STORAGES
from tests.harness.etcd import running as etcd

HERE = Path(__file__).parent
RECORDINGS = HERE.parent / "recordings"
ADVERTISED = "192.168.77.1"
RECORDED_PORT = 6443
DEADLINE_SECONDS = 60.0
collect_ignore = [] if AT_LENGTH else ["test_changing_members.py", "test_planted_bugs.py"]


class _Quiet:
    def ready(self, status: str) -> None:
        pass

    def stopping(self) -> None:
        pass


@dataclass
class Answer:
    """A response; `json` is its body decoded, None when it is not JSON."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Kept(threading.local):
    """The connection that a thread's last call has left open."""

    connection: http.client.HTTPSConnection | None = None


class Api:
    """Requests to a running server. No User-Agent is sent unless a test says so.

    Calls of a thread share a connection: a handshake costs both sides six times what a request does.
    """

    def __init__(self, running: "ServerThread") -> None:
        self.server = running.server
        self.loop = running.loop
        self._running = running
        self._kept = Kept()

    def stop(self) -> None:
        self._let_go()
        self._running.stop()

    @property
    def token(self) -> str:
        assert self.server.credentials is not None
        return self.server.credentials.admin_token

    @cached_property
    def _context(self) -> ssl.SSLContext:
        assert self.server.credentials is not None
        return ssl.create_default_context(cafile=str(self.server.credentials.authority))

    def connect(self, timeout: float = DEADLINE_SECONDS) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, context=self._context, timeout=timeout)

    def _let_go(self) -> None:
        """Close the connection of this thread's calls."""
        if self._kept.connection is not None:
            self._kept.connection.close()
            self._kept.connection = None

    def _exchange(self, method: str, path: str, payload: bytes | None, headers: dict[str, str]) -> Answer:
        """Over the connection of this thread, which is opened if necessary."""
        connection = self._kept.connection = self._kept.connection or self.connect()
        connection.request(method, path, payload, headers)
        response = connection.getresponse()
        received: dict[str, str] = {}
        for name, value in response.getheaders():
            received[name] = f"{received[name]}, {value}" if name in received else value
        return Answer(response.status, received, response.read())

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        raw: bytes | None = None,
        token: str | None = "admin",
    ) -> Answer:
        sent = {"Accept": "application/json", **(headers or {})}
        if token is not None:
            sent["Authorization"] = f"Bearer {self.token if token == 'admin' else token}"
        payload = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        if payload is not None:
            sent.setdefault("Content-Type", "application/json")
        reused = self._kept.connection is not None
        try:
            return self._exchange(method, path, payload, sent)
        except (ConnectionError, ssl.SSLEOFError):
            self._let_go()
            if not reused:
                raise
        except BaseException:
            self._let_go()
            raise
        return self._exchange(method, path, payload, sent)  # the server had closed the connection meanwhile

    def get(self, path: str) -> Any:
        return self.call("GET", path).json

    def watch(self, path: str, headers: dict[str, str] | None = None) -> Iterator[Any]:
        """Frames until the server ends the stream."""
        connection = self.connect()
        connection.request("GET", path, None, {"Authorization": f"Bearer {self.token}", **(headers or {})})
        response = connection.getresponse()
        try:
            for line in response:
                yield json.loads(line)
        finally:
            connection.close()

    def until(self, path: str, true: Callable[[Any], bool]) -> Any:
        """The object at `path` once it is as wanted; waits with a watch-like deadline."""
        waiting = threading.Event()
        last = None
        for _ in range(int(DEADLINE_SECONDS / 0.02)):
            last = self.get(path)
            if true(last):
                return last
            waiting.wait(0.02)
        raise AssertionError(f"{path} never became as wanted: {last}")


class ServerThread:
    """A server in a thread of its own."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        everything = {"port": 0, "data_dir": directory, "advertise_address": ADVERTISED, **settings}
        self.server = ApiServer(ServerSettings(**everything), mirror=mirror_endpoints, notifier=_Quiet())
        self._started = threading.Event()
        self._failures: list[BaseException] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main)
        self._thread.start()
        assert self._started.wait(DEADLINE_SECONDS)
        if self._failures:
            self._thread.join()
            raise self._failures[0]

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where the server runs."""
        assert self._loop is not None
        return self._loop

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - whatever ended the thread is the test's to see
            self._failures.append(error)
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(self.server.run())
        ready = asyncio.ensure_future(self.server.ready.wait())
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if running.done():
            running.result()
        self._started.set()
        await running

    def stop(self) -> None:
        assert self._loop is not None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.server.stop)
            self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()
        assert not self._failures


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever has a server of its own is the same for each of STORAGES: `make test` has run it."""
    if "sqlite" in STORAGES:
        return
    same = [item for item in items if item.path.is_relative_to(HERE) and "api" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=same)
    items[:] = [item for item in items if item not in same]


@pytest.fixture(scope="session")
def places_in_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[EtcdSettings]]:
    """One etcd for all servers; each is given a prefix of its own, where nothing is yet."""
    with etcd(tmp_path_factory.mktemp("etcd"), 3) as cluster:
        members = tuple(cluster.endpoints)
        yield (EtcdSettings(servers=members, prefix=f"/registry-{number}") for number in itertools.count())


@pytest.fixture(scope="module", params=STORAGES)
def api(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Api]:
    """A server with an empty store: on disk, unless STORAGES says otherwise."""
    with ExitStack() as stack:
        settings: dict[str, Any] = {"in_memory": True} if request.param == "memory" else {}
        if request.param == "etcd":
            settings = {"etcd": next(request.getfixturevalue("places_in_etcd"))}
        api = Api(ServerThread(tmp_path_factory.mktemp("server"), **settings))
        stack.callback(api.stop)
        yield api


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Api]]:
    """Starts servers on one directory with settings of the test's choosing."""
    running: list[ServerThread] = []

    def begin(**settings: Any) -> Api:
        running.append(ServerThread(tmp_path, **settings))
        return Api(running[-1])

    yield begin
    for one in reversed(running):
        one.stop()


@pytest.fixture
def demo(api: Api, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = f"demo-{zlib.crc32(request.node.name.encode()):08x}"
    assert api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).status == 201
    return name


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], Any]:
    """An exchange by its file name."""
    return lambda name: json.loads((RECORDINGS / f"{name}.json").read_text())


@pytest.fixture(scope="session")
def comparable() -> Callable[[Any], Any]:
    """A JSON value without what differs from run to run: identities, revisions, times, random allocations."""
    return _comparable


_RANDOM_NAME = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\Z")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_CLUSTER_IP = re.compile(r"\b10\.(9[6-9]|10\d|11[01])\.\d+\.\d+\b")
_BY_KEY = {"resourceVersion": "<revision>", "nodePort": 1, "healthCheckNodePort": 1, "continue": "<token>"}


def _comparable(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {_text(name): _comparable(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item, key) for item in value]
    if key in _BY_KEY and value not in (None, ""):
        return _BY_KEY[key]
    if isinstance(value, str):
        return _RANDOM_NAME.sub("-<random>", _text(value)) if key == "name" else _text(value)
    return value


def _text(text: str) -> str:
    text = _TIME.sub("<time>", _UUID.sub("<uid>", text))
    return text if text == "10.96.0.1" else _CLUSTER_IP.sub("<cluster ip>", text)
