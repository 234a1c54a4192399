"""Reads the state that decides the next step from the cluster."""

from nodeagent.cli.migration import found
from nodeagent.cli.migration.kubectl import Kubectl

AGENT_IMAGE = "nodeagent.io/agent-image"
"""Annotation of kube-proxy's DaemonSet, as long as something of ours may be on a node."""


def read_cluster(kubectl: Kubectl) -> found.ClusterState:
    """Returns the present state. Raises KubectlFailed."""
    pods = kubectl.items("pods")
    revisions = kubectl.items("controllerrevisions.apps")
    service = kubectl.get("service", "kubernetes", namespace="default")
    addresses = (service or {}).get("spec", {}).get("clusterIPs") or ()
    configuration = kubectl.get("configmap", found.KUBE_PROXY)
    return found.ClusterState(
        tuple(found.node_of(node) for node in kubectl.items("nodes")),
        _daemonset(kubectl, found.KUBE_PROXY, pods, revisions),
        _daemonset(kubectl, found.AGENT, pods, revisions),
        None if configuration is None else configuration.get("data") or {},
        tuple(addresses),
    )


def read_image(kubectl: Kubectl) -> str | None:
    """Returns the image of our agents, as noted when they were placed; None if nothing of ours is left."""
    daemonset = kubectl.get("daemonset", found.KUBE_PROXY)
    noted: str | None = (daemonset or {"metadata": {}})["metadata"].get("annotations", {}).get(AGENT_IMAGE)
    return noted


def _daemonset(
    kubectl: Kubectl, name: str, pods: list[found.Document], revisions: list[found.Document]
) -> found.DaemonSet | None:
    return found.daemonset_of(kubectl.get("daemonset", name), pods, revisions)
