"""A DaemonSet that answers names is updated, and cannot be updated, without CoreDNS: no lookup of a pod or a node is lost.

`make image` first: dist/ has the image. KUBERNETES=DIR names the programs of a release.
"""

import json
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from nodeagent import __version__
from nodeagent.lab.net.network_namespaces import DIRECTORY
from nodeagent.proxy.dataplane.program.schema import SCHEMA
from tests.conformance import other_release
from tests.conformance.guests import enter
from tests.conformance.proxies import install_nodeagent
from tests.conformance.test_upgrade import network_namespace
from tests.harness.dns.lookups import Asker, lookups_from, until_all_say
from tests.harness.kubernetes import images
from tests.harness.kubernetes.cluster import Cluster
from tests.harness.kubernetes.node import CLUSTER_DNS, PAUSE
from tests.harness.kubernetes.release import ROOT, Release

IMAGE = ROOT / "dist" / f"nodeagent-{__version__}-amd64.tar"
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("KUBERNETES" not in os.environ, reason="KUBERNETES names no release of Kubernetes"),
    pytest.mark.skipif(not IMAGE.exists(), reason=f"no {IMAGE}: make image"),
]
NEWER = "99.0.0"
NAMESPACE = ("--namespace", "kube-system")
DAEMONSET = "daemonset/nodeagent"
ROLLOUT_SECONDS = 600
NAME, ANSWER = "kubernetes.default.svc.cluster.local.", "10.96.0.1"
NOWHERE = "NODEAGENT_SOURCE_MASTER=http://127.0.0.1:9"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    release = Release.of_environment()
    newer = other_release.make(IMAGE, tmp_path_factory.mktemp("images"), version=NEWER, schema=SCHEMA + 1)
    with Cluster(release, [images.make(release), IMAGE, newer]) as cluster:
        install_nodeagent(cluster, release)
        labels = {"app": "caller"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "pause", "image": PAUSE}]}}
        spec = {"selector": {"matchLabels": labels}, "template": pod}
        document = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "caller"}, "spec": spec}
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        cluster.kubectl("rollout", "status", "daemonset/caller", "--timeout=110s")
        yield cluster


@pytest.fixture
def askers(cluster: Cluster) -> Iterator[list[Asker]]:
    """In a pod of each node, and on each node, by UDP and TCP."""
    places = {node.name: partial(enter, DIRECTORY / node.namespace) for node in cluster.nodes}
    nodes = {node.name: node for node in cluster.nodes}
    for pod in cluster.get("pods", "--selector", "app=caller")["items"]:
        node = nodes[pod["spec"]["nodeName"]]
        places[f"pod on {node.name}"] = partial(enter, network_namespace(node, pod["metadata"]["uid"]))
    with lookups_from(places, [CLUSTER_DNS], NAME) as askers:
        until_all_say(askers, ANSWER)
        yield askers


def agents(cluster: Cluster) -> dict[str, Any]:
    """The agents' pods by name."""
    pods = cluster.get("pods", *NAMESPACE, "--selector", "app.kubernetes.io/name=nodeagent")["items"]
    return {pod["metadata"]["name"]: pod for pod in pods}


def runs(pod: Any) -> bool:
    return any("running" in container["state"] for container in pod["status"].get("containerStatuses", ()))


def rolled_out(cluster: Cluster) -> None:
    status = ("rollout", "status", DAEMONSET, *NAMESPACE, f"--timeout={ROLLOUT_SECONDS}s")
    cluster.kubectl(*status, seconds=ROLLOUT_SECONDS + 10)


def assert_none_lost(askers: list[Asker]) -> None:
    until_all_say(askers, ANSWER)
    answered = sum(asker.answers[ANSWER] for asker in askers)
    print(
        f"\n{len(askers)} clients: {answered} lookups answered, slowest {max(asker.longest for asker in askers):.2f} s"
    )
    assert [loss for asker in askers for loss in asker.lost] == []
    assert {answer for asker in askers for answer in asker.answers} == {ANSWER}


def test_no_lookup_is_lost_while_the_daemonset_is_updated(cluster: Cluster, askers: list[Asker]) -> None:
    before = agents(cluster)
    images_of = (f"nodeagent=nodeagent:{NEWER}", f"sysctls=nodeagent:{NEWER}")
    cluster.kubectl("set", "image", DAEMONSET, *NAMESPACE, *images_of)
    rolled_out(cluster)
    cluster.wait_until(lambda: not before.keys() & agents(cluster).keys(), "the end of the former pods")
    assert_none_lost(askers)


def test_an_agent_that_cannot_start_leaves_the_former_one_where_it_is(cluster: Cluster, askers: list[Asker]) -> None:
    before = agents(cluster)
    cluster.kubectl("set", "env", DAEMONSET, *NAMESPACE, "--containers=nodeagent", NOWHERE)

    def waits() -> bool:
        new = [name for name, pod in agents(cluster).items() if name not in before and runs(pod)]
        return any("seconds so far" in cluster.kubectl("logs", *NAMESPACE, name) for name in new)

    cluster.wait_until(waits, "an agent that waits for its API server", ROLLOUT_SECONDS)
    now = agents(cluster)
    assert before.keys() <= now.keys()
    assert not [name for name in before if "deletionTimestamp" in now[name]["metadata"]]
    (new,) = now.keys() - before.keys()
    assert {"type": "Ready", "status": "False"}.items() <= next(
        condition for condition in now[new]["status"]["conditions"] if condition["type"] == "Ready"
    ).items()

    cluster.kubectl("rollout", "undo", DAEMONSET, *NAMESPACE)
    rolled_out(cluster)
    assert_none_lost(askers)
