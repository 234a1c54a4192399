"""The whole source: which resources are read, and how Endpoints stand in for EndpointSlices."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import pytest

from nodeagent.model.backoff import Backoff
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Node, ObjectMeta
from nodeagent.proxy.source.api_source import ABSENCES, ApiServerSource, EndpointsApi
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.object_store import ChangeListener, ClusterStore
from nodeagent.proxy.source.pace import Pace, Timing

SERVICES, NODES = "/api/v1/services", "/api/v1/nodes"
ENDPOINTS = "/api/v1/endpoints"
GROUP = "/apis/discovery.k8s.io/v1"
SLICES = f"{GROUP}/endpointslices"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
SHOP = ObjectKey("demo", "shop")

REFUSED = {"kind": "Status", "code": 422, "reason": "Invalid"}


class Server(Protocol):
    url: str
    requests: list[Any]

    def reply(self, path: str, body: object, status: int = 200, headers: dict[str, str] | None = None) -> None: ...

    def stream(self, path: str, pieces: Iterable[bytes], end: str = "close") -> None: ...

    def watches(self, path: str) -> list[dict[str, str]]: ...

    def lists(self, path: str) -> list[dict[str, str]]: ...


Servers = Callable[[], AbstractAsyncContextManager[Server]]
Recording = Callable[[str], Any]


class Deaf:
    def service_changed(self, key: ObjectKey) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what tests wait for has no event of its own
            await asyncio.sleep(0.002)


def follow(
    servers: Servers,
    prepare: Callable[[Server], None],
    scenario: Callable[[Server, ClusterStore], Awaitable[None]],
    *,
    endpoints_api: EndpointsApi = "auto",
    waits: list[float] | None = None,
    listener: ChangeListener | None = None,
    timing: Timing | None = None,
) -> tuple[Server, ClusterStore]:
    async def sleep(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)
        await asyncio.sleep(3600 if seconds > 100 else seconds / 200)

    async def main() -> tuple[Server, ClusterStore]:
        store = ClusterStore(listener or Deaf())
        async with servers() as server:
            prepare(server)
            async with ApiClient(ClusterAccess(server.url, TlsTrust(), FixedCredential())) as client:
                pace = Pace(random=lambda: 0.5, sleep=sleep, timing=timing or Timing())
                source = ApiServerSource(client, store, node_name="n1", endpoints_api=endpoints_api, pace=pace)
                task = asyncio.create_task(source.run())
                try:
                    await scenario(server, store)
                finally:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
            return server, store

    return asyncio.run(main())


def offer(server: Server, path: str, body: Any) -> None:
    """A full list at this path, from a server without streaming lists."""
    server.reply(path, REFUSED, 422)
    server.reply(path, body)


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": f"zone of {name}"}}}


def addresses(store: ClusterStore, service: ObjectKey) -> list[str]:
    return sorted(
        address
        for held in store.slices_of(service)
        for endpoint in held.endpoints or ()
        if endpoint.conditions and endpoint.conditions.ready
        for address in endpoint.addresses or ()
    )


def test_everything_a_cluster_says_is_in_the_store(fake_api_server: Servers, recording: Recording) -> None:
    def prepare(server: Server) -> None:
        server.reply(GROUP, recording("apis-discovery-v1")["body"])
        offer(server, SERVICES, recording("service-list")["body"])
        offer(server, SLICES, recording("endpointslices-from-pods")["body"])
        offer(server, NODES, {"metadata": {"resourceVersion": "1"}, "items": [node("n2"), node("n1")]})
        offer(server, CIDRS, recording("servicecidrs")["body"])

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: store.is_synced and store.node is not None and bool(store.service_cidrs))

    server, store = follow(fake_api_server, prepare, scenario)
    assert sorted(key.name for key in store.services) == ["applied", "dual", "ext", "lb", "np", "sticky", "web"]
    assert addresses(store, SHOP) == ["10.244.1.5", "10.244.2.6"]
    assert store.slices_of(ObjectKey("demo", "headless")) == ()
    assert store.node is not None
    assert store.node.metadata.labels == {"topology.kubernetes.io/zone": "zone of n1"}
    assert [cidr.metadata.name for cidr in store.service_cidrs] == ["kubernetes"]
    assert store.problems == ()
    selectors = {
        path: (query.get("labelSelector"), query.get("fieldSelector"))
        for path, query, _ in server.requests
        if path != GROUP
    }
    assert selectors == {
        SERVICES: ("!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"),
        SLICES: ("!service.kubernetes.io/headless", None),
        NODES: (None, "metadata.name=n1"),
        CIDRS: (None, None),
    }


@pytest.mark.parametrize("endpoints_api", ["auto", "endpoints"])
def test_endpoints_stand_in_where_there_are_no_slices(
    fake_api_server: Servers, recording: Recording, endpoints_api: EndpointsApi
) -> None:
    def prepare(server: Server) -> None:
        if endpoints_api == "auto":
            server.reply(GROUP, {"kind": "Status"}, 503)
            for _ in range(ABSENCES):
                server.reply(GROUP, recording("unknown-path-404")["body"].encode(), 404)
        offer(server, SERVICES, recording("service-list")["body"])
        offer(server, ENDPOINTS, recording("endpoints-from-pods")["body"])

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: store.is_synced)
        assert addresses(store, SHOP) == ["10.244.1.5", "10.244.2.6"]

    server, store = follow(fake_api_server, prepare, scenario, endpoints_api=endpoints_api)
    assert store.slices_of(ObjectKey("demo", "headless")) == ()
    asked = {path for path, _, _ in server.requests}
    assert SLICES not in asked
    assert (GROUP in asked) is (endpoints_api == "auto")


def endpoints(*subsets: tuple[int, list[str]]) -> dict[str, Any]:
    return {
        "metadata": {"name": "shop", "namespace": "demo", "resourceVersion": "2"},
        "subsets": [{"addresses": [{"ip": ip} for ip in ips], "ports": [{"port": port}]} for port, ips in subsets],
    }


@pytest.mark.parametrize(
    ("then", "shown"),
    [
        pytest.param([("MODIFIED", endpoints((81, ["10.1.0.9"])))], ["10.1.0.9"], id="fewer ports and families"),
        pytest.param([("DELETED", endpoints())], [], id="deleted"),
        pytest.param([("MODIFIED", endpoints()), ("MODIFIED", endpoints((7, ["10.1.0.4"])))], ["10.1.0.4"], id="new"),
        pytest.param([("ERROR", {"code": 410, "reason": "Expired"})], ["10.1.0.7"], id="listed again"),
    ],
)
def test_the_slices_of_endpoints_go_with_them(
    fake_api_server: Servers, then: list[tuple[str, dict[str, Any]]], shown: list[str]
) -> None:
    first = endpoints((80, ["10.1.0.1"]), (81, ["10.1.0.2", "fd00::1"]))

    def prepare(server: Server) -> None:
        offer(server, SERVICES, {"metadata": {"resourceVersion": "1"}, "items": []})
        offer(server, ENDPOINTS, {"metadata": {"resourceVersion": "1"}, "items": [first]})
        server.stream(ENDPOINTS, [json.dumps({"type": kind, "object": obj}).encode() + b"\n" for kind, obj in then])
        if then[0][0] == "ERROR":
            server.reply(ENDPOINTS, {"metadata": {"resourceVersion": "8"}, "items": [endpoints((80, ["10.1.0.7"]))]})

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: store.is_synced and len(server.watches(ENDPOINTS)) == 3)
        assert addresses(store, SHOP) == shown

    follow(fake_api_server, prepare, scenario, endpoints_api="endpoints")


def test_a_server_without_service_cidrs_is_asked_ever_more_rarely_and_is_no_problem(
    fake_api_server: Servers, recording: Recording
) -> None:
    waits: list[float] = []

    def prepare(server: Server) -> None:
        offer(server, SERVICES, recording("service-list")["body"])
        offer(server, SLICES, recording("endpointslices-from-pods")["body"])
        offer(server, NODES, {"metadata": {"resourceVersion": "1"}, "items": []})
        server.reply(CIDRS, b"404 page not found", 404)

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: store.is_synced and len(waits) == 6 and len(server.watches(NODES)) == 2)

    server, store = follow(fake_api_server, prepare, scenario, endpoints_api="endpointslices", waits=waits)
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0]
    assert (len(server.lists(CIDRS)), store.problems, store.service_cidrs) == (6, (), ())


FORBIDDEN = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}


class Listener(Deaf):
    """Knows whether there is anything left to wait for."""

    def __init__(self) -> None:
        self.all_there = False

    def all_listed(self) -> None:
        self.all_there = True


@pytest.mark.parametrize("path", [CIDRS, NODES])
def test_forbidden_is_an_answer_where_the_agent_can_do_without(
    fake_api_server: Servers, recording: Recording, path: str
) -> None:
    """A role of before ServiceCIDRs: nobody waits for them, and the missing permission is reported."""
    listener = Listener()

    def prepare(server: Server) -> None:
        offer(server, SERVICES, recording("service-list")["body"])
        offer(server, SLICES, recording("endpointslices-from-pods")["body"])
        other = NODES if path == CIDRS else CIDRS
        offer(server, other, {"metadata": {"resourceVersion": "1"}, "items": [node("n1")] if other == NODES else []})
        for _ in range(50):
            server.reply(path, FORBIDDEN, 403)

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: listener.all_there and bool(store.problems))
        assert not store.node_gone, "nobody has said that"
        assert store.awaited == ()

    _, store = follow(
        fake_api_server, prepare, scenario, endpoints_api="endpointslices", listener=listener, timing=Timing()
    )
    (problem,) = store.problems
    assert (problem.subject, problem.reason) == (f"API resource {path.rsplit('/', 1)[1]}", "Forbidden")


@pytest.mark.parametrize("path", [SERVICES, SLICES])
def test_forbidden_is_no_answer_where_nothing_can_be_programmed_without(
    fake_api_server: Servers, recording: Recording, path: str
) -> None:
    def prepare(server: Server) -> None:
        for other, name in ((SERVICES, "service-list"), (SLICES, "endpointslices-from-pods")):
            if other != path:
                offer(server, other, recording(name)["body"])
        for _ in range(100):
            server.reply(path, FORBIDDEN, 403)

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: sum(asked == path for asked, _, _ in server.requests) > 5)
        assert not store.is_synced
        assert {SERVICES: "Service", SLICES: "EndpointSlice"}[path] in store.awaited

    follow(fake_api_server, prepare, scenario, endpoints_api="endpointslices")


def test_service_cidrs_that_become_forbidden_stay_as_they_were(fake_api_server: Servers, recording: Recording) -> None:
    def prepare(server: Server) -> None:
        offer(server, CIDRS, recording("servicecidrs")["body"])
        server.stream(CIDRS, [])
        for answer in (403, 404, 403):
            server.reply(CIDRS, {**FORBIDDEN, "code": answer, "reason": ""}, answer)
            server.reply(CIDRS, {**FORBIDDEN, "code": answer, "reason": ""}, answer)

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: sum(asked == CIDRS for asked, _, _ in server.requests) >= 6)
        assert [cidr.metadata.name for cidr in store.service_cidrs] == ["kubernetes"]

    follow(fake_api_server, prepare, scenario, endpoints_api="endpointslices", timing=Timing(absent=Backoff(1.0, 1.0)))


def test_a_discovery_that_fails_for_a_moment_is_not_the_answer_of_an_old_server(
    fake_api_server: Servers, recording: Recording
) -> None:
    """A starting server, or nginx in its place, has no discovery.k8s.io/v1 either."""

    def prepare(server: Server) -> None:
        for status in (404, 400, 503, 404):
            server.reply(GROUP, b"<html>not here</html>", status)
        server.reply(GROUP, recording("apis-discovery-v1")["body"])
        offer(server, SERVICES, recording("service-list")["body"])
        offer(server, SLICES, recording("endpointslices-from-pods")["body"])

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: store.is_synced)

    server, store = follow(fake_api_server, prepare, scenario)
    assert addresses(store, SHOP) == ["10.244.1.5", "10.244.2.6"]
    assert not any(path == ENDPOINTS for path, _, _ in server.requests)


def test_endpoint_slices_are_read_as_soon_as_the_server_has_them(
    fake_api_server: Servers, recording: Recording
) -> None:
    def prepare(server: Server) -> None:
        for _ in range(ABSENCES + 2):
            server.reply(GROUP, b"404 page not found", 404)
        offer(server, SERVICES, recording("service-list")["body"])
        offer(server, ENDPOINTS, {"metadata": {"resourceVersion": "1"}, "items": [endpoints((80, ["10.9.9.9"]))]})

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: addresses(store, SHOP) == ["10.9.9.9"])
        server.reply(GROUP, recording("apis-discovery-v1")["body"])
        offer(server, SLICES, recording("endpointslices-from-pods")["body"])
        await until(lambda: addresses(store, SHOP) == ["10.244.1.5", "10.244.2.6"])
        watches = len(server.watches(ENDPOINTS))
        await until(lambda: len(server.watches(SLICES)) == 2)
        assert len(server.watches(ENDPOINTS)) == watches

    _, store = follow(fake_api_server, prepare, scenario, timing=Timing(absent=Backoff(20.0, 20.0)))
    assert store.problems == ()


@pytest.mark.parametrize(
    ("there", "detail"),
    [
        pytest.param(["n2", "n10"], "no Node of that name; there are: n10, n2", id="others"),
        pytest.param([], "no Node of that name; the cluster has no Nodes at all", id="none"),
        pytest.param(
            [f"n{number}" for number in range(20, 40)],
            "no Node of that name; there are: n20, n21, n22, n23, n24, n25, n26, n27, n28, n29, …",
            id="many",
        ),
        pytest.param(None, "no Node of that name", id="not allowed to ask"),
    ],
)
def test_a_wrong_node_name_is_reported_with_the_existing_names(
    fake_api_server: Servers, there: list[str] | None, detail: str
) -> None:
    nothing = {"metadata": {"resourceVersion": "1"}, "items": []}

    def prepare(server: Server) -> None:
        offer(server, NODES, nothing)
        server.stream(NODES, [], end="hang")
        if there is None:
            server.reply(NODES, FORBIDDEN, 403)
        else:
            server.reply(NODES, {"metadata": {"resourceVersion": "1"}, "items": [node(name) for name in there]})

    async def scenario(server: Server, store: ClusterStore) -> None:
        await until(lambda: bool(store.problems))
        assert [str(problem) for problem in store.problems] == [f"Node n1: NoSuchNode: {detail}"]
        store.put(Node(ObjectMeta(name="n1")))
        await until(lambda: not store.problems)

    follow(fake_api_server, prepare, scenario, endpoints_api="endpointslices")
