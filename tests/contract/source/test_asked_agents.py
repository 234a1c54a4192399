"""The agents of a cluster, asked in their pods: who cannot be asked is named, and it takes no longer than it may."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from nodeagent.cli.all_nodes import cluster_options
from nodeagent.cli.all_nodes.agent_pods import AgentPlace, find_agents
from nodeagent.cli.all_nodes.asking import Agents, NoAnswer
from nodeagent.cli.all_nodes.cluster_options import BRIEF, ClusterTarget
from nodeagent.cli.all_nodes.cluster_question import answers_of
from nodeagent.cli.exit_codes import Failure
from nodeagent.diagnosis.all_nodes.node_answers import Condition, NodeAnswer
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.pod_exec import PROTOCOLS, ExecResult

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/kube-system/pods"
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
Serve = Callable[[web.Request], Any]


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def pod(
    name: str, on: str, state: dict[str, Any] | None = None, *, ready: bool = True, **metadata: str
) -> dict[str, Any]:
    status = {"name": "nodeagent", "state": RUNNING if state is None else state, "ready": ready}
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": on, "containers": [{"name": "nodeagent"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


class Lister:
    """Lists what it was given, two a page."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self.lists = lists
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes:
        query = dict(parameters)
        self.asked.append((path, query))
        items = self.lists[path.rpartition("/")[2]]
        begins = int(query.get("continue", 0))
        ends = begins + 2
        going_on = str(ends) if ends < len(items) else ""
        return json.dumps({"metadata": {"continue": going_on}, "items": items[begins:ends]}).encode()


def found(nodes: list[dict[str, Any]], pods: list[dict[str, Any]], only: Sequence[str] = ()) -> dict[str, AgentPlace]:
    places = asyncio.run(find_agents(Lister(nodes=nodes, pods=pods), "kube-system", only, ""))
    return {one.node: one for one in places}


def test_every_node_has_a_place_or_a_reason() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    pods = [pod("agent-a", "a"), pod("agent-b", "b", waiting, ready=False)]
    pods += [pod("agent-d", "d", deletionTimestamp="2026-01-01T00:00:00Z")]
    places = found([node(name) for name in "abcd"], pods)
    assert places["a"] == AgentPlace("a", pod="agent-a")
    assert "its agent's pod agent-b does not run (CrashLoopBackOff)" in places["b"].why
    assert "no pod of an agent in kube-system is on it" in places["c"].why
    assert places["c"].why.endswith("; if systemd runs its agent: ssh c nodeagent check")
    assert "it is being deleted" in places["d"].why


def test_of_two_pods_the_ready_one_is_asked_then_the_newer() -> None:
    old = pod("old", "a", creationTimestamp="2026-01-01T00:00:00Z")
    for ready, best in ((False, "old"), (True, "new")):
        new = pod("new", "a", ready=ready, creationTimestamp="2026-01-02T00:00:00Z")
        assert found([node("a")], [new, old])["a"].pod == best


def test_nodes_of_a_lab_are_asked_in_the_lab() -> None:
    places = found(
        [node("a", **{"app.kubernetes.io/managed-by": "nodeagent-lab-mine"}), node("b")], [pod("agent", "b")]
    )
    assert places == {"a": AgentPlace("a", lab="mine"), "b": AgentPlace("b", pod="agent")}


def test_nodes_are_chosen_by_name_and_an_unknown_name_is_reported() -> None:
    assert set(found([node("a"), node("b"), node("c")], [], ["b"])) == {"b"}
    with pytest.raises(Failure, match="--node node-: the cluster has no such node; did you mean node-1"):
        found([node("node-1")], [], ["node-"])
    lister = Lister(nodes=[], pods=[])
    asyncio.run(find_agents(lister, "kube-system", (), "zone=a"))
    assert lister.asked[0][1]["labelSelector"] == "zone=a"


def test_pods_of_other_namespaces_are_not_asked() -> None:
    """Anybody who may create a pod somewhere could speak for a node."""
    lister = Lister(nodes=[node("a")], pods=[])
    asyncio.run(find_agents(lister, "kube-system", (), ""))
    assert [path for path, _ in lister.asked] == [NODES, PODS]
    assert cluster_options.NAMESPACE == "kube-system"


@asynccontextmanager
async def agents(
    fake_api_server: Callable[[], Any], serve: Serve, names: Sequence[str], **limits: Any
) -> AsyncIterator[Agents]:
    async with fake_api_server() as server:
        for name in names:
            server.answer(f"{PODS}/agent-{name}/exec", serve)
        async with ApiClient(ClusterAccess(server.url, TlsTrust(), FixedCredential())) as client:
            yield Agents(client, "kube-system", **{"within": 10.0, "seconds": 5.0, **limits})


def asked(
    fake_api_server: Callable[[], Any], serve: Serve, places: list[AgentPlace], **limits: Any
) -> dict[str, ExecResult | NoAnswer]:
    came: dict[str, ExecResult | NoAnswer] = {}

    async def main() -> None:
        names = [one.node for one in places if one.pod]
        async with agents(fake_api_server, serve, names, **limits) as opened:
            await opened.ask(places, lambda _: ["check"], lambda place, one: came.__setitem__(place.node, one))

    asyncio.run(main())
    return came


def places(*names: str) -> list[AgentPlace]:
    return [AgentPlace(name, pod=f"agent-{name}") for name in names]


async def says_ok(request: web.Request) -> web.StreamResponse:
    assert request.query.getall("command") == ["nodeagent", "check"]
    opened = web.WebSocketResponse(protocols=PROTOCOLS)
    await opened.prepare(request)
    await opened.send_bytes(b"\x01ok")
    await opened.send_bytes(b"\x03" + json.dumps({"metadata": {}, "status": "Success"}).encode())
    await opened.close()
    return opened


async def hangs(request: web.Request) -> web.StreamResponse:
    opened = web.WebSocketResponse(protocols=PROTOCOLS)
    await opened.prepare(request)
    await opened.receive()
    return opened


async def refuses(request: web.Request) -> web.StreamResponse:
    status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no exec for you"}
    return web.json_response(status, status=403)


async def is_away(request: web.Request) -> web.StreamResponse:
    status = {"kind": "Status", "status": "Failure", "message": "error dialing backend: dial tcp: connection refused"}
    return web.json_response(status, status=500)


def test_an_answer_is_what_the_command_printed(fake_api_server: Callable[[], Any]) -> None:
    assert asked(fake_api_server, says_ok, places("a")) == {"a": ExecResult(0, b"ok", "")}


@pytest.mark.parametrize(
    ("serve", "why"),
    [(refuses, "you may not run commands in pod agent-a"), (is_away, "500"), (hangs, "did not end in 0.3 s")],
)
def test_who_cannot_be_asked_is_named(fake_api_server: Callable[[], Any], serve: Serve, why: str) -> None:
    came = asked(fake_api_server, serve, [*places("a"), AgentPlace("b", why="it is away")], seconds=0.3)
    assert why in str(came["a"])
    assert str(came["b"]) == "it is away"


def test_five_hundred_nodes_that_hang_take_no_longer_than_they_may(fake_api_server: Callable[[], Any]) -> None:
    began = time.monotonic()
    nodes = places(*(f"n{number}" for number in range(500)))
    came = asked(fake_api_server, hangs, nodes, within=1.5, seconds=60.0)
    assert time.monotonic() - began < 30
    assert len(came) == 500
    assert all("no answer within 1.5 s" in str(one) or "did not end in 1.5 s" in str(one) for one in came.values())


def test_no_more_than_so_many_at_a_time(fake_api_server: Callable[[], Any]) -> None:
    now = 0
    most = 0

    async def counted(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return await says_ok(request)

    came = asked(fake_api_server, counted, places(*(f"n{number}" for number in range(40))), at_once=4)
    assert len(came) == 40
    assert most == 4


async def of_an_older_version(request: web.Request) -> web.StreamResponse:
    """It knows `explain`, and no `--brief`."""
    opened = web.WebSocketResponse(protocols=PROTOCOLS)
    await opened.prepare(request)
    if "--brief" in request.query.getall("command"):
        await opened.send_bytes(b"\x02Usage: nodeagent explain\n\nError: No such option: --brief\n")
        causes = [{"reason": "ExitCode", "message": "2"}]
        status = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    else:
        await opened.send_bytes(b"\x01" + json.dumps({"verdict": "healthy: 3 Services", "healthy": True}).encode())
        status = {"metadata": {}, "status": "Success"}
    await opened.send_bytes(b"\x03" + json.dumps(status).encode())
    await opened.close()
    return opened


def test_an_older_agent_is_asked_in_its_own_format(fake_api_server: Callable[[], Any], tmp_path: Path) -> None:
    async def main() -> list[NodeAnswer]:
        async with fake_api_server() as server:
            server.reply(NODES, {"items": [node("a"), node("b")]})
            server.reply(PODS, {"items": [pod("agent-a", "a"), pod("agent-b", "b")]})
            for serve in (of_an_older_version, of_an_older_version):
                server.answer(f"{PODS}/agent-a/exec", serve)
            server.answer(f"{PODS}/agent-b/exec", says_nothing)
            cluster = ClusterTarget((kubeconfig(tmp_path, server.url),), None, (), "", "kube-system", 20.0)
            return await asyncio.to_thread(answers_of, cluster, ["explain", BRIEF, "-o", "json"])

    unclear, well = asyncio.run(main())
    assert well == NodeAnswer("a", Condition.HEALTHY, "healthy: 3 Services")
    assert unclear == NodeAnswer("b", Condition.UNKNOWN, "it ended with 0 and printed nothing"), "a control"


async def says_nothing(request: web.Request) -> web.StreamResponse:
    opened = web.WebSocketResponse(protocols=PROTOCOLS)
    await opened.prepare(request)
    await opened.send_bytes(b"\x03" + json.dumps({"metadata": {}, "status": "Success"}).encode())
    await opened.close()
    return opened


def kubeconfig(directory: Path, server: str) -> Path:
    path = directory / "kubeconfig"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "current-context": "c",
    }
    path.write_text(json.dumps(document))
    return path
