"""A server, or something before it, that refuses selectors for a while: what is asked for, and what is let in meanwhile."""

import asyncio
from typing import Any

import pytest

from nodeagent.model.backoff import Backoff
from nodeagent.model.objects import LABEL_HEADLESS, LABEL_PROXY_NAME
from nodeagent.proxy.source.api_source import ApiServerSource
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pace import Pace, Timing
from nodeagent.proxy.source.pod_addresses import PodAddresses
from tests.contract.source.following import (
    DEADLINE_SECONDS,
    SERVICES,
    Changes,
    Follower,
    Server,
    Servers,
    event,
    failure,
    follow,
    listed,
    refuse_streaming,
    service,
)

AT_ONCE = Backoff(first_seconds=0.0)
UNSUPPORTED = failure(400, "BadRequest", "field label not supported: spec.clusterIP")
OF_A_FRONT = failure(400, "BadRequest", "the request could not be forwarded")


def test_selectors_that_a_server_refused_are_tried_again(fake_api_server: Servers) -> None:
    refusal = failure(400, "BadRequest", "field label not supported: spec.clusterIP")

    def prepare(server: Server) -> None:
        refuse_streaming(server)
        server.reply(SERVICES, refusal, 400)
        server.reply(SERVICES, listed("5", "web"))
        server.reply(SERVICES, refusal, 400)
        server.stream(SERVICES, [event("MODIFIED", service("web", "6"))])
        server.reply(SERVICES, listed("7"))
        server.reply(SERVICES, listed("8", "new"))

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(3, names=["new"])

    follower = follow(fake_api_server, prepare, scenario, Timing(absent=AT_ONCE))
    with_field = ["fieldSelector" in query for query in follower.server.lists(SERVICES)]
    assert with_field == [True, False, True, True, True]
    assert [query.get("limit") for query in follower.server.lists(SERVICES)] == ["500", "500", "1", "1", "500"]
    assert "fieldSelector" in follower.server.watches(SERVICES)[-1]


def test_a_status_400_that_names_no_selector_does_not_cost_the_selectors(fake_api_server: Servers) -> None:
    def prepare(server: Server) -> None:
        refuse_streaming(server)
        server.reply(SERVICES, OF_A_FRONT, 400)
        server.reply(SERVICES, listed("5", "web"))
        server.reply(SERVICES, OF_A_FRONT, 400)
        server.stream(SERVICES, [event("ADDED", service("late", "6"))], end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(3, names=["late", "web"])

    follower = follow(fake_api_server, prepare, scenario)
    assert all("fieldSelector" in query for _, query, _ in follower.server.requests)
    assert len(follower.server.lists(SERVICES)) == 2


def test_selectors_are_asked_for_again_soon_and_then_later_and_later(fake_api_server: Servers) -> None:
    """The watches in between are asked to end when the time has come, so none has to break off."""
    refusals = 8

    def prepare(server: Server) -> None:
        refuse_streaming(server)
        server.reply(SERVICES, UNSUPPORTED, 400)
        server.reply(SERVICES, listed("5", "web"))
        for _ in range(refusals):
            server.stream(SERVICES, [], every_seconds=0.0)

    async def scenario(follower: Follower) -> None:
        await follower.until(lambda: len(follower.server.watches(SERVICES)) > refusals)

    follower = follow(fake_api_server, prepare, scenario)
    assert all(int(query["timeoutSeconds"]) <= 5 for query in follower.server.watches(SERVICES)[1:])
    waits = Timing().absent
    assert [waits.seconds(count) for count in range(1, 9)] == [5, 10, 20, 40, 80, 160, 300, 300]


LABELLED = {"other": {LABEL_PROXY_NAME: "x"}, "headless": {LABEL_HEADLESS: ""}}


def items(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "5"}, "items": list(objects)}


def named(name: str, labels: dict[str, str] | None = None, **more: object) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "demo", "labels": labels or {}}, **more}


@pytest.mark.parametrize("endpoints_api", ["endpointslices", "endpoints"])
def test_without_selectors_only_what_concerns_this_node_and_proxy_is_let_in(
    fake_api_server: Servers, endpoints_api: Any
) -> None:
    slices = "/apis/discovery.k8s.io/v1/endpointslices"
    marked = {"kubernetes.io/service-name": "web"}
    answers = {
        SERVICES: items(
            named("web", spec={"clusterIP": "10.0.0.1"}),
            named("other", LABELLED["other"], spec={"clusterIP": "10.0.0.2"}),
            named("headless", LABELLED["headless"], spec={"clusterIP": "None"}),
        ),
        slices: items(
            named("web-1", marked, addressType="IPv4", endpoints=[]),
            named("headless-1", marked | LABELLED["headless"], addressType="IPv4", endpoints=[]),
        ),
        "/api/v1/endpoints": items(
            named("web", subsets=[{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]),
            named("headless", LABELLED["headless"], subsets=[{"addresses": [{"ip": "192.0.2.2"}]}]),
        ),
        "/api/v1/nodes": items(named("node-a"), named("node-b")),
        "/api/v1/pods": items(
            named("here", spec={"nodeName": "node-a"}, status={"phase": "Running", "podIPs": [{"ip": "192.0.2.3"}]}),
            named("there", spec={"nodeName": "node-b"}, status={"phase": "Running", "podIPs": [{"ip": "192.0.2.4"}]}),
            named("over", spec={"nodeName": "node-a"}, status={"phase": "Failed", "podIPs": [{"ip": "192.0.2.5"}]}),
        ),
        "/apis/networking.k8s.io/v1/servicecidrs": items(),
    }
    store = ClusterStore(Changes())
    pods = PodAddresses(lambda _: None, lambda _: None, node_name="node-a")

    async def main() -> None:
        async with fake_api_server() as server:
            for path, body in answers.items():
                server.reply(path, failure(422, "Invalid", "sendInitialEvents is forbidden"), 422)
                for _ in range(3 if path != "/apis/networking.k8s.io/v1/servicecidrs" else 0):
                    server.reply(path, UNSUPPORTED, 400)
                server.reply(path, body)
            pace = Pace(random=lambda: 0.0, sleep=asyncio.sleep)
            async with ApiClient(ClusterAccess(server.url, TlsTrust(), FixedCredential())) as client:
                source = ApiServerSource(
                    client, store, node_name="node-a", endpoints_api=endpoints_api, pods=pods, pace=pace
                )
                following = asyncio.create_task(source.run())
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while not (store.is_synced and store.node is not None and pods.addresses):  # noqa: ASYNC110
                        await asyncio.sleep(0.002)
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())
    assert [key.name for key in store.services] == ["web"]
    assert store.node is not None
    assert store.node.metadata.name == "node-a"
    assert store.counts["EndpointSlice"] == 1
    assert [str(address) for address in pods.addresses] == ["192.0.2.3"]
