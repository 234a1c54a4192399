"""However a run ends, it leaves no namespace; what keeps it from beginning is one line."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest

from nodeagent.diagnosis.connectivity.cluster import NAMESPACES, ClusterClient, Document
from nodeagent.diagnosis.connectivity.deployment import ConnectivityError
from nodeagent.diagnosis.connectivity.objects import ROLE
from nodeagent.diagnosis.connectivity.trial import TrialOptions, remove_leftovers, try_everything
from nodeagent.proxy.source.client.api_errors import ForbiddenError, KubeError, NotServedError, ServerUnreachableError

WANTED = TrialOptions(
    suffix="1",
    image="",
    own_image="nodeagent:1",
    nodes=3,
    pod_seconds=0.2,
    settle_seconds=0.0,
    balancer_addresses=("198.51.100.77",),
    external_ips=("198.51.100.78",),
)
NAME = "nodeagent-connectivity-1"
NODE = {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


class ClusterInMemory(ClusterClient):
    """Namespaces, nodes and what else is created. failing: end of a path → how its creation fails. slow: creations wait."""

    def __init__(self, failing: Mapping[str, Exception] | None = None, nodes: Iterable[Document] = (NODE,)) -> None:
        self.failing = dict(failing or {})
        self.nodes = list(nodes)
        self.namespaces: set[str] = set()
        self.created: list[tuple[str, Mapping[str, object]]] = []
        self.slow = False
        self.pods: list[Document] = []

    @property
    def server(self) -> str:
        return "https://192.0.2.1:6443"

    async def items(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> list[Document]:
        return {"/api/v1/nodes": self.nodes, "/api/v1/pods": []}.get(path, self.pods)

    async def create(self, path: str, document: Mapping[str, object]) -> Document:
        if self.slow:
            await asyncio.sleep(0.1)
        for end, error in self.failing.items():
            if path.endswith(end):
                raise error
        if path == NAMESPACES:
            self.namespaces.add(NAME)
        self.created.append((path, document))
        made: Document = {"spec": {"ipFamilies": ["IPv4"], "clusterIPs": ["10.96.0.1"], "ports": []}, **document}
        made["spec"] = {"ipFamilies": ["IPv4"], **made["spec"]}
        return made

    async def patch(self, path: str, document: Mapping[str, object]) -> Document:
        return {}

    async def delete_namespace(self, name: str) -> bool:
        if "delete" in self.failing:
            raise self.failing["delete"]
        self.namespaces.discard(name)
        return True

    async def has_namespace(self, name: str) -> bool:
        return name in self.namespaces

    async def own_namespaces(self) -> list[str]:
        return sorted(self.namespaces)


def attempt(cluster: ClusterClient) -> list[str]:
    """What is said on the way; raises what ends it."""
    said: list[str] = []
    asyncio.run(try_everything(cluster, WANTED, said.append))
    return said


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ({"/namespaces": ForbiddenError(403, "no", reason="Forbidden")}, "403 Forbidden: no"),
        ({"/configmaps": ServerUnreachableError("it went away")}, "it went away"),
        ({"/daemonsets": NotServedError(404, "none")}, "has no DaemonSets: no pods can run in this cluster"),
        ({"/services": ForbiddenError(403, "no")}, "403: no"),
        ({}, "the test pods do not run after 0.2 s: no pod server on n1, and 2 more"),
    ],
    ids=["no namespace", "half way", "no DaemonSets", "no Services", "no pods"],
)
def test_a_trial_that_fails_half_way_is_removed_and_reported(failing: dict[str, Exception], said: str) -> None:
    cluster = ClusterInMemory(failing)

    with pytest.raises((KubeError, ConnectivityError), match=said):
        attempt(cluster)

    assert cluster.namespaces == set()


def test_a_pod_that_will_never_run_is_named_at_once() -> None:
    cluster = ClusterInMemory()
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    cluster.pods = [
        {
            "metadata": {"name": "server-x", "labels": {ROLE: "server"}},
            "spec": {"nodeName": "n1"},
            "status": {"containerStatuses": [{"state": {"waiting": waiting}}]},
        }
    ]

    with pytest.raises(ConnectivityError, match="pod server-x on n1: ErrImagePull: no such image"):
        attempt(cluster)

    assert cluster.namespaces == set()


def test_nothing_is_made_where_no_node_is_ready() -> None:
    cluster = ClusterInMemory(nodes=[])

    with pytest.raises(ConnectivityError, match=r"https://192\.0\.2\.1:6443: no node is ready"):
        attempt(cluster)

    assert cluster.created == []


def test_interrupted_while_the_namespace_is_made_it_is_removed() -> None:
    """The answer has not come yet, so nobody knows whether there is one."""
    cluster = ClusterInMemory()
    cluster.slow = True

    async def main() -> None:
        running = asyncio.create_task(try_everything(cluster, WANTED, lambda _: None))
        await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert [path for path, _ in cluster.created] == [NAMESPACES], "control: it was made after the interruption"
    assert cluster.namespaces == set()


def test_objects_that_cannot_be_removed_are_reported_and_hide_no_error() -> None:
    cluster = ClusterInMemory({"/configmaps": ServerUnreachableError("first"), "delete": ForbiddenError(403, "no")})
    said: list[str] = []

    with pytest.raises(ServerUnreachableError, match="first"):
        asyncio.run(try_everything(cluster, WANTED, said.append))

    assert said[-1] == f"namespace {NAME} is left, because it could not be deleted: 403: no; try --cleanup"


def test_a_namespace_that_was_refused_is_not_deleted() -> None:
    cluster = ClusterInMemory({"/namespaces": ForbiddenError(403, "no"), "delete": ForbiddenError(403, "no")})
    said: list[str] = []

    with pytest.raises(ForbiddenError):
        asyncio.run(try_everything(cluster, WANTED, said.append))

    assert len(said) == 1, "nothing of what is left"


def test_leftovers_are_removed() -> None:
    cluster = ClusterInMemory()
    cluster.namespaces = {"nodeagent-connectivity-a", "nodeagent-connectivity-b"}
    said: list[str] = []

    assert asyncio.run(remove_leftovers(cluster, said.append))
    assert cluster.namespaces == set()
    assert said == ["namespaces/nodeagent-connectivity-a deleted", "namespaces/nodeagent-connectivity-b deleted"]
    assert asyncio.run(remove_leftovers(cluster, said.append))
    assert said[-1] == "there is nothing to remove"
