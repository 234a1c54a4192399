"""The DaemonSet is updated, taken back, broken and rebooted under load, in a cluster of real kubelets: no connection fails.

`make image` first: dist/ has the image. KUBERNETES=DIR names the programs of a release.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from nodeagent import __version__
from nodeagent.lab.net.member import Member
from nodeagent.model.addresses import Protocol
from nodeagent.proxy.dataplane.program.schema import SCHEMA
from tests.conformance import other_release
from tests.conformance.guests import GuestForks
from tests.conformance.traffic import Access, Traffic, traffic
from tests.harness.kubernetes import images
from tests.harness.kubernetes.cluster import CONTROL, Cluster
from tests.harness.kubernetes.node import PAUSE, SOCKET, Node
from tests.harness.kubernetes.release import ROOT, Release
from tests.harness.worlds.topology import POD_CIDRS

IMAGE = ROOT / "dist" / f"nodeagent-{__version__}-amd64.tar"
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("KUBERNETES" not in os.environ, reason="KUBERNETES names no release of Kubernetes"),
    pytest.mark.skipif(not IMAGE.exists(), reason=f"no {IMAGE}: make image"),
]
NEWER, OLDER = "99.0.0", "0.0.1"
NAMESPACE = ("--namespace", "kube-system")
DAEMONSET = "daemonset/nodeagent"
ROLLOUT_SECONDS = 600
NODE_PORT = 30080
BROKEN = "NODEAGENT_TRAFFIC_CLUSTER_CIDRS=nonsense"


class Deployed:
    """A cluster with the DaemonSet, a server and a caller in a pod of each node, and a Service of both families."""

    def __init__(self, cluster: Cluster, ends: ExitStack) -> None:
        self.cluster = cluster
        self._ends = ends
        self._forks = GuestForks(GuestForks.__module__)
        ends.callback(self._forks.close)
        self.members = {node.name: cluster.world[node.name] for node in cluster.nodes}
        self.members[CONTROL] = cluster.world[CONTROL]

    def install(self) -> None:
        """`deploy/base`, by an overlay as docs/deploy.md has it."""
        overlay = self.cluster.directory / "overlay"
        overlay.mkdir()
        deploy = ROOT / "deploy" / "base"
        configuration = yaml.safe_load((deploy / "nodeagent.yaml").read_text())
        configuration["traffic"]["clusterCIDRs"] = list(POD_CIDRS)
        kubeconfig = yaml.safe_load((deploy / "kubeconfig").read_text())
        kubeconfig["clusters"][0]["cluster"]["server"] = self.cluster.api_server
        kustomization = {
            "namespace": "kube-system",
            "resources": [os.path.relpath(deploy, overlay)],
            "configMapGenerator": [
                {"name": "nodeagent", "behavior": "merge", "files": ["kubeconfig", "nodeagent.yaml"]}
            ],
        }
        documents = {"nodeagent.yaml": configuration, "kubeconfig": kubeconfig, "kustomization.yaml": kustomization}
        for name, document in documents.items():
            (overlay / name).write_text(yaml.safe_dump(document))
        self.cluster.kubectl("apply", "-k", str(overlay))
        self.rolled_out()

    def run_pods(self) -> None:
        """Pods do nothing; actors serve and call in their network namespaces."""
        for name in ("web", "caller"):
            labels = {"app": name}
            container = {"name": "pause", "image": PAUSE}
            pod = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
            spec = {"selector": {"matchLabels": labels}, "template": pod}
            document = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": spec}
            self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
            self.cluster.kubectl("rollout", "status", f"daemonset/{name}", "--timeout=110s")
        ports = [
            {"name": "tcp", "port": 80, "targetPort": 8080, "nodePort": NODE_PORT},
            {"name": "udp", "port": 80, "targetPort": 8080, "nodePort": NODE_PORT, "protocol": "UDP"},
        ]
        spec = {"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"}, "ports": ports}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(service))
        for node in self.cluster.nodes:
            self.enter_pods(node)

    def enter_pods(self, node: Node) -> None:
        """Actors in the pods that run on this node now, without those that are being deleted."""
        for pod in self.cluster.get("pods", "--field-selector", f"spec.nodeName={node.name}")["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                continue
            name = f"{pod['metadata']['labels']['app']}-{node.name}"
            addresses = tuple(entry["ip"] for entry in pod["status"]["podIPs"])
            member = Member(name, str(network_namespace(node, pod["metadata"]["uid"])), addresses, self._forks)
            self._ends.callback(member.wait)
            self._ends.callback(member.close)
            self.members[name] = member
            if name.startswith("web-"):
                for protocol in (Protocol.TCP, Protocol.UDP):
                    self._ends.enter_context(member.serve(8080, protocol))

    def ways(self) -> list[Access]:
        """From pods and nodes to the ClusterIPs, from outside to the node ports."""
        addresses = self.cluster.get("service", "web")["spec"]["clusterIPs"]
        inside = [name for name in self.members if name != CONTROL and not name.startswith("web-")]
        found = [(client, "ClusterIP", address, 80) for client in inside for address in addresses]
        found += [(CONTROL, "NodePort", one, NODE_PORT) for node in self.cluster.nodes for one in node.addresses]
        return [Access(*way, protocol) for way in found for protocol in (Protocol.TCP, Protocol.UDP)]

    def agents(self) -> dict[str, str]:
        """The agent's pod of each node."""
        pods = self.cluster.get("pods", *NAMESPACE, "--selector", "app.kubernetes.io/name=nodeagent")["items"]
        return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in pods}

    def change(self, *arguments: str) -> None:
        """Change the DaemonSet by `kubectl set`."""
        kind, *rest = arguments
        self.cluster.kubectl("set", kind, DAEMONSET, *NAMESPACE, *rest)

    def rolled_out(self) -> None:
        """Wait until each node has the pod that is wanted now."""
        status = ("rollout", "status", DAEMONSET, *NAMESPACE, f"--timeout={ROLLOUT_SECONDS}s")
        self.cluster.kubectl(*status, seconds=ROLLOUT_SECONDS + 10)

    def update(self, version: str) -> None:
        """Another image on every node."""
        self.change("image", f"nodeagent=nodeagent:{version}", f"sysctls=nodeagent:{version}")
        self.rolled_out()

    def schemas(self) -> set[str]:
        """What the comments of the tables say."""
        listed = [
            node.output("nft", "--terse", "list", "table", family, "nodeagent")
            for node in self.cluster.nodes
            for family in ("ip", "ip6")
        ]
        return {line.split('"')[1].split(":")[0] for text in listed for line in text.splitlines() if "schema" in line}


def network_namespace(node: Node, uid: str) -> Path:
    """That of a pod, as it is found from outside the node."""
    containers = ("ctr", "-a", SOCKET, "-n", "k8s.io", "containers")
    wanted = f'labels."io.kubernetes.pod.uid"=={uid},labels."io.cri-containerd.kind"==sandbox'
    sandbox = node.output(*containers, "ls", "-q", wanted).split()[-1]
    namespaces = json.loads(node.output(*containers, "info", sandbox))["Spec"]["linux"]["namespaces"]
    (path,) = (one["path"] for one in namespaces if one["type"] == "network")
    first_process = node.command()[2]
    return Path(f"/proc/{first_process}/root{path.replace('/var/run', '/run')}")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    release, folder = Release.of_environment(), tmp_path_factory.mktemp("images")
    newer = other_release.make(IMAGE, folder, version=NEWER, schema=SCHEMA + 1)
    older = other_release.make(IMAGE, folder, version=OLDER, schema=SCHEMA - 1)
    with Cluster(release, [images.make(release), IMAGE, newer, older]) as cluster, ExitStack() as ends:
        deployed = Deployed(cluster, ends)
        deployed.install()
        deployed.run_pods()
        yield deployed


def assert_nothing_failed(seen: Traffic) -> None:
    """New connections and datagrams on every way, and those that were open."""
    print(f"\n{seen}")
    for outcome in seen.outcomes:
        assert outcome.attempts > 0, f"{outcome.way}: nothing was tried"
        assert not outcome.failed, f"{outcome.way}: {outcome.failed[:3]}"
        assert outcome.held > 0, f"{outcome.way}: nothing was held open"
        assert not outcome.held_lost, f"{outcome.way}: {outcome.held_lost} open connections were lost"


@pytest.mark.parametrize("ownership", ["owned", "plain"])
def test_no_connection_fails_while_the_daemonset_is_updated_and_taken_back(deployed: Deployed, ownership: str) -> None:
    deployed.change("env", f"NODEAGENT_DATAPLANE_TABLE_OWNERSHIP={ownership}")
    deployed.update(__version__)
    for version, schema in ((NEWER, SCHEMA + 1), (OLDER, SCHEMA - 1), (__version__, SCHEMA)):
        before = deployed.agents()
        with traffic(deployed.members, deployed.ways()) as seen:
            deployed.update(version)
        assert deployed.schemas() == {f"schema {schema}"}
        assert not set(before.values()) & set(deployed.agents().values())
        assert_nothing_failed(seen)


def test_a_configuration_that_cannot_work_stops_at_one_node(deployed: Deployed) -> None:
    before = deployed.agents()
    with traffic(deployed.members, deployed.ways()) as seen:
        deployed.change("env", "--containers=nodeagent", BROKEN)
        deployed.cluster.wait_until(lambda: _restarts(deployed) > 1, "an agent that does not start", ROLLOUT_SECONDS)
        now = deployed.agents()
        assert len(set(before.values()) & set(now.values())) == len(before) - 1
        deployed.cluster.kubectl("rollout", "undo", DAEMONSET, *NAMESPACE)
        deployed.rolled_out()
    assert_nothing_failed(seen)


def _restarts(deployed: Deployed) -> int:
    pods = deployed.cluster.get("pods", *NAMESPACE, "--selector", "app.kubernetes.io/name=nodeagent")["items"]
    counts: list[int] = [
        status["restartCount"] for pod in pods for status in pod["status"].get("containerStatuses", ())
    ]
    return max(counts, default=0)


def test_a_node_whose_power_was_cut_serves_again_and_costs_others_nothing(deployed: Deployed) -> None:
    """Its kernel comes back empty: no tables, links, sysctls and tracked connections, as its disk was when the power went."""
    lost, other = deployed.cluster.nodes
    deployed.cluster.kubectl("label", "node", other.name, "servers=here")
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"servers": "here"}}}}}
    deployed.cluster.kubectl("patch", "daemonset", "web", "--patch", json.dumps(patch))
    deployed.cluster.kubectl("rollout", "status", "daemonset/web", "--timeout=110s")
    deployed.enter_pods(other)
    ways = deployed.ways()
    there = [way for way in ways if way.client == lost.name or way.address in lost.addresses]
    untouched = [
        way for way in ways if way not in there and way.client in (other.name, f"caller-{other.name}", CONTROL)
    ]
    with traffic(deployed.members, untouched) as seen:
        lost.cut_power()
        assert all(_fails(deployed, way) for way in there if way.client == CONTROL), "control: the node is gone"
        began = time.monotonic()
        lost.boot()
        deployed.members[lost.name] = deployed.cluster.world[lost.name]
        for way in there:
            deployed.cluster.wait_until(lambda: not _fails(deployed, way), f"{way}, from and to a new node", 300)  # noqa: B023
        print(f"\n{len(there)} ways from and to the node that came back: {time.monotonic() - began:.0f} s")
    assert_nothing_failed(seen)


def _fails(deployed: Deployed, way: Access) -> bool:
    return bool(deployed.members[way.client].ask(way.address, way.port, way.protocol, timeout=1.0).failures)
