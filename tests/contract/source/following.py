"""An informer that follows a server of the test's, and what such a server says."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Service
from nodeagent.proxy.source.api_source import StoreSink
from nodeagent.proxy.source.client.api_client import BODY_LIMIT_BYTES, ApiClient
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.informer import Informer, Resource
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pace import Pace, Timing

SERVICES = "/api/v1/services"
RESOURCE = Resource(Service, SERVICES, (("labelSelector", "!a"), ("fieldSelector", "spec.clusterIP!=None")))
DEADLINE_SECONDS = 60.0

Query = dict[str, str]


class Server(Protocol):
    url: str
    requests: list[Any]

    def reply(self, path: str, body: object, status: int = 200, headers: dict[str, str] | None = None) -> None: ...

    def stream(self, path: str, pieces: Iterable[bytes], end: str = "close", every_seconds: float = 0.0) -> None: ...

    def watches(self, path: str) -> list[Query]: ...

    def lists(self, path: str) -> list[Query]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


Servers = Callable[[], AbstractAsyncContextManager[Server]]
Recording = Callable[[str], Any]


class Changes:
    """A listener that counts."""

    def __init__(self) -> None:
        self.services: list[str] = []

    def service_changed(self, key: ObjectKey) -> None:
        self.services.append(key.name)

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


class Follower:
    """An informer of Services at work, and what it did. `waits`: seconds it wanted to wait, in order."""

    def __init__(self, server: Server, timing: Timing, body_limit: int = BODY_LIMIT_BYTES) -> None:
        self.server = server
        self._body_limit = body_limit
        self.changes = Changes()
        self.store = ClusterStore(self.changes)
        self.waits: list[float] = []
        self._pace = Pace(random=lambda: 0.5, sleep=self._sleep, timing=timing)

    @property
    def names(self) -> list[str]:
        return sorted(key.name for key in self.store.services)

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not condition():  # noqa: ASYNC110  # what tests wait for has no event of its own
                    await asyncio.sleep(0.002)
        except TimeoutError:
            seen = [query for _, query, _ in self.server.requests]
            raise AssertionError(f"names={self.names} problems={self.store.problems} requests={seen}") from None

    async def until_watching(self, count: int, *, names: list[str]) -> None:
        """Until this many watches were asked for in all and the store holds these services."""
        await self.until(lambda: len(self.server.watches(SERVICES)) >= count and self.names == sorted(names))

    async def run(self) -> None:
        access = ClusterAccess(self.server.url, TlsTrust(), FixedCredential())
        async with ApiClient(access, body_limit=self._body_limit) as client:
            await Informer(client, RESOURCE, StoreSink(self.store, Service), self._pace).run()

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(seconds / 200)


def follow(
    servers: Servers,
    prepare: Callable[[Server], None],
    scenario: Callable[[Follower], Awaitable[None]],
    timing: Timing | None = None,
    body_limit: int = BODY_LIMIT_BYTES,
) -> Follower:
    """Run an informer against a prepared server while the scenario goes on."""

    async def main() -> Follower:
        async with servers() as server:
            prepare(server)
            follower = Follower(server, timing or Timing(), body_limit)
            informer = asyncio.create_task(follower.run())
            try:
                await scenario(follower)
                assert not informer.done(), "an informer never ends by itself"
            finally:
                informer.cancel()
                await asyncio.gather(informer, return_exceptions=True)
            return follower

    return asyncio.run(main())


def service(name: str, version: str = "1", **labels: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "demo", "resourceVersion": version, "labels": labels}
    return {"metadata": meta, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}


def listed(version: str, *names: str, **meta: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version, **meta}, "items": [service(name) for name in names]}


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def lines(events: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(recorded).encode() + b"\n" for recorded in events)


def end_of_initial(version: str) -> bytes:
    return event(
        "BOOKMARK", {"metadata": {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}}
    )


def failure(code: int, reason: str = "", message: str = "", **details: object) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


def refuse_streaming(server: Server) -> None:
    server.reply(SERVICES, failure(422, "Invalid", "sendInitialEvents is forbidden"), 422)


def start_with(version: str, *names: str) -> Callable[[Server], None]:
    """A server without streaming lists that holds these services."""

    def prepare(server: Server) -> None:
        refuse_streaming(server)
        server.reply(SERVICES, listed(version, *names))

    return prepare
