"""The way back, from any step of the takeover: kube-proxy serves again, and nothing of ours is left."""

import json
from collections.abc import Sequence
from functools import partial

from nodeagent.cli.migration.found import AGENT, ClusterState
from nodeagent.cli.migration.kubectl import KubectlFailed
from nodeagent.cli.migration.manifests import CLEANING_LABEL, cleaning_pod
from nodeagent.cli.migration.node_check import NodeFailed, has_rules_of_kube_proxy
from nodeagent.cli.migration.placement import is_taken_out, leaves_single_nodes, restore_everywhere
from nodeagent.cli.migration.reading import read_image
from nodeagent.cli.migration.steps import has_agent, has_kube_proxy, without_kube_proxy
from nodeagent.cli.migration.work import ManagedCluster, TakeoverStopped, clean_node

_OWN = "app.kubernetes.io/name=nodeagent"


def take_back(cluster: ManagedCluster) -> None:
    """Gives the nodes back to kube-proxy; may be repeated. Raises TakeoverStopped and KubectlFailed."""
    found = cluster.read()
    if found.kube_proxy is None:
        raise TakeoverStopped("there is no DaemonSet kube-system/kube-proxy to give the nodes back to")
    if found.agents is not None:
        cluster.note_image(found.agents.image)
        _bring_kube_proxy_back(cluster, found)
        _remove_agents(cluster)
    elif is_taken_out(found.kube_proxy) or leaves_single_nodes(found.kube_proxy):
        cluster.place_kube_proxy(restore_everywhere(found.kube_proxy), "is placed as before")
        cluster.until("kube-proxy runs on every node", without_kube_proxy)
    _clean_up_after_us(cluster)


def _bring_kube_proxy_back(cluster: ManagedCluster, found: ClusterState) -> None:
    """Places kube-proxy again and waits for its rules. Old ones are removed first, so that present ones are new."""
    away = [name for name in found.names if has_agent(found, name) and not has_kube_proxy(found, name)]
    stale = [node.name for node in found.nodes if node.name in away and not node.rules_removed]
    cluster.until_each("removing kube-proxy's old rules", partial(clean_node, cluster), stale)
    assert found.kube_proxy is not None
    if is_taken_out(found.kube_proxy) or leaves_single_nodes(found.kube_proxy):
        cluster.place_kube_proxy(restore_everywhere(found.kube_proxy), "is placed as before")
    for node in found.nodes:
        if node.rules_removed or node.name in stale:
            cluster.annotate(node.name, None)
    now = cluster.until("kube-proxy runs on every node", without_kube_proxy)
    with_agent = [name for name in now.names if has_agent(now, name)]
    cluster.until_each("kube-proxy's rules", partial(_expect_rules, cluster), with_agent)
    cluster.say(f"checked: kube-proxy runs on {len(now.names)} nodes and has programmed them")


def _expect_rules(cluster: ManagedCluster, found: ClusterState, node: str) -> None:
    if not has_rules_of_kube_proxy(cluster.kubectl, found, node):
        raise NodeFailed(f"{node}: kube-proxy has programmed nothing yet")


def _remove_agents(cluster: ManagedCluster) -> None:
    kubectl = cluster.kubectl
    kinds = "daemonset.apps,serviceaccount,configmap,service,clusterrole.rbac.authorization.k8s.io"
    kinds += ",clusterrolebinding.rbac.authorization.k8s.io"
    output = kubectl.run("delete", "--namespace", "kube-system", kinds, "--selector", _OWN, "--wait=false")
    for line in output.splitlines():
        cluster.say(f"removed: {line.split(' deleted')[0]}")
    cluster.until(
        f"the pods of {AGENT} have ended",
        lambda _: [pod["metadata"]["name"] for pod in kubectl.items("pods", "--selector", _OWN)],
    )


def _clean_up_after_us(cluster: ManagedCluster) -> None:
    """Runs a pod on every node with the image of the agents; also after an interrupted run."""
    image = read_image(cluster.kubectl)
    found = cluster.read()
    if image is not None:
        _remove_cleaning_pods(cluster)
        for node in found.names:
            cluster.kubectl.run("create", "--filename", "-", text=json.dumps(cleaning_pod(node, image)))
        cluster.until("removing what the agents left", partial(_still_cleaning, cluster))
        cluster.say(f"changed: {len(found.names)} nodes: removed the tables and the interface of nodeagent")
        _remove_cleaning_pods(cluster)
    for one in found.nodes:
        if one.label is not None:
            cluster.label(one.name, None)
        if one.rules_removed:
            cluster.annotate(one.name, None)
    cluster.until_each("kube-proxy's health", partial(_expect_healthy, cluster), found.names)
    cluster.say(f"checked: kube-proxy is healthy on {len(found.names)} nodes")
    if image is not None:
        cluster.note_image(None)


def _still_cleaning(cluster: ManagedCluster, _found: ClusterState) -> Sequence[str]:
    """Returns nodes whose pod has not succeeded yet. Raises TakeoverStopped if one failed."""
    left = []
    for pod in cluster.kubectl.items("pods", "--selector", CLEANING_LABEL):
        node, phase = pod["spec"]["nodeName"], pod["status"].get("phase")
        if phase == "Failed":
            logs = cluster.kubectl.call("logs", "--namespace", "kube-system", pod["metadata"]["name"])
            raise TakeoverStopped(f"{node}: nodeagent cleanup: {logs.output.strip() or logs.errors.strip()}")
        if phase != "Succeeded":
            left.append(node)
    return left


def _remove_cleaning_pods(cluster: ManagedCluster) -> None:
    cluster.kubectl.run("delete", "pods", "--namespace", "kube-system", "--selector", CLEANING_LABEL)


def _expect_healthy(cluster: ManagedCluster, _found: ClusterState, node: str) -> None:
    """Raises NodeFailed if kube-proxy is unhealthy, or its port is not reachable from the API server."""
    try:
        cluster.kubectl.run("get", "--raw", f"/api/v1/nodes/{node}:10256/proxy/healthz")
    except KubectlFailed as error:
        raise NodeFailed(f"{node}: kube-proxy at port 10256: {error}") from error
