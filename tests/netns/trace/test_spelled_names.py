"""`nodeagent trace` takes pods, nodes and Services by name, and real packets go as it says."""

from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol, endpoint_text
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import document, make_node, make_service, service_port
from tests.harness.plain_api_server import plain_api_server
from tests.harness.warm_start import WarmLauncher

pytestmark = pytest.mark.kernel

PORTS = (service_port(80, name="http"), service_port(80, Protocol.UDP, name="dns"))
OPEN = 30080
NO_AGENT = ["--socket", "/nonexistent"]
SPELLINGS = (
    ("svc/web:http",),
    ("web:http",),
    ("default/web:http",),
    ("web.default.svc.cluster.local:http",),
    ("svc/web:http", "-n", "default"),
)


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Cluster:
    cluster.world["web-0"].serve(TARGET_PORT, Protocol.TCP)
    cluster.expose("web", *cluster_ips(1), pods=("web-0",), ports=PORTS)
    cluster.expose("open", *cluster_ips(2), pods=("web-0",), ports=(service_port(80, node_port=OPEN),))
    cluster.program_once(*WITH_POD_CIDRS)
    return cluster


def pod(name: str, on: str, *addresses: str) -> dict[str, Any]:
    meta = {"namespace": "default", "name": name}
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": on},
        "status": {"podIPs": [{"ip": one} for one in addresses]},
    }


class Command:
    """`nodeagent trace` on the node."""

    def __init__(self, node: Cluster, launcher: WarmLauncher) -> None:
        self.world = node.world
        self.sources = node.sources()
        self._launcher = launcher

    def trace(self, *words: str, sources: list[str] | None = None) -> CompletedProcess[str]:
        given = self.sources if sources is None else sources
        return self._launcher.command(self.world.namespace(NODE), ("trace", *words, *given))


@pytest.fixture
def command(node: Cluster, warm_launcher: WarmLauncher) -> Command:
    return Command(node, warm_launcher)


@pytest.mark.parametrize("words", SPELLINGS, ids=" ".join)
def test_from_the_node_to_a_service(command: Command, words: tuple[str, ...]) -> None:
    said = command.trace(f"node/{NODE}", *words)
    source, address = command.world[NODE].address(Family.IPV4), cluster_ips(1)[0]
    assert said.stdout.startswith(f"arrives: {source} -> {address}:80/TCP, default/web:http"), said
    assert command.world[NODE].ask(address, 80, timeout=5).names == {"web-0": 1}


def test_from_a_pod_of_this_node_only(command: Command, tmp_path: Path) -> None:
    world, kubeconfig = command.world, tmp_path / "kubeconfig"
    here = [world["caller"].address(family) for family in Family]
    objects: list[dict[str, Any]] = [
        document(make_service("web", *cluster_ips(1), ports=PORTS)),
        document(make_node(NODE, world[NODE].addresses)),
        pod("a", NODE, *here),
        pod("b", "node-b", world["far-0"].address(Family.IPV4)),
    ]
    sources = ["--kubeconfig", str(kubeconfig), "--node-name", NODE]
    with plain_api_server(world.namespace(NODE), objects, kubeconfig):
        near = command.trace("pod/a", "svc/web:http", sources=sources)
        far = command.trace("pod/b", "svc/web:http", sources=sources)
        nobody = command.trace("pod/c", "svc/web:http", sources=sources)
    address = cluster_ips(1)[0]
    assert near.stdout.startswith(f"arrives: {world['caller'].address(Family.IPV4)} -> {address}:80/TCP"), near
    assert world["caller"].ask(address, 80, timeout=5).names == {"web-0": 1}
    assert far.returncode == 2
    assert "pod default/b is on node node-b, and this is node-a: run nodeagent trace on node-b" in far.stderr
    assert (nobody.returncode, nobody.stderr.count("\n")) == (1, 1)
    assert "kubectl get pod c -n default -o wide says its address" in nobody.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pod/a", "svc/web:http"), "the agent does not know pods: give --kubeconfig FILE"),
        (("node/node-q", "svc/web:http"), "this node is node-a: run nodeagent trace on node-q"),
        ((f"node/{NODE}", "svc/nobody"), "Service default/nobody is not known here"),
        ((f"node/{NODE}", "svc/web"), "Service default/web has ports dns, http: name one"),
        ((f"node/{NODE}", "svc/web:https"), "Service default/web has no port https; it has dns, http"),
        ((f"node/{NODE}", "30999"), "no Service has node port 30999 on this node"),
    ],
    ids=["pod", "node", "service", "port missing", "port wrong", "node port"],
)
def test_a_name_that_nobody_knows_is_one_line(command: Command, words: tuple[str, ...], says: str) -> None:
    done = command.trace(*words)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("family", Family)
def test_a_node_port_by_its_number_from_outside(command: Command, family: Family) -> None:
    world = command.world
    client, address = world["outside"].address(family), world[NODE].address(family)
    said = command.trace(client, str(OPEN))
    assert said.stdout.startswith(f"arrives: {client} -> {endpoint_text(address, OPEN)}/TCP, default/open"), said
    assert world["outside"].ask(address, OPEN, timeout=5).names == {"web-0": 1}


@pytest.mark.parametrize(
    "words",
    [
        ("pod/a", "a/b/c"),
        ("node/x", "svc/"),
        ("nobody", "svc/web"),
        ("node/x", "a/b", "-n", "c"),
        ("one",),
        ("a", "b", "c"),
    ],
    ids=" ".join,
)
def test_words_that_cannot_be_are_refused_also_without_an_agent(command: Command, words: tuple[str, ...]) -> None:
    done = command.trace(*words, sources=NO_AGENT)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done


def test_words_that_can_be_want_an_agent(command: Command) -> None:
    """The control."""
    done = command.trace("node/x", "svc/web", sources=NO_AGENT)
    assert (done.returncode, "no agent answers" in done.stderr) == (1, True)
