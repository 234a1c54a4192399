"""Describes what a cluster's state means for the takeover (pure)."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from nodeagent.cli.migration.configuration import Assessment, assess
from nodeagent.cli.migration.found import ClusterState, DaemonSet, Node

ARCHITECTURES = frozenset({"amd64", "arm64"})
"""Those with an image."""
OTHER_WAYS = "docs/migrate-from-kube-proxy.md describes how to do it by hand"


class Outlook(Struct, frozen=True):
    """What a takeover would meet in this cluster.
    facts: the present state. notes: differences that the user should know. blockers: what must change first. rows: one for each node."""

    facts: tuple[str, ...]
    notes: tuple[str, ...]
    blockers: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]


def outlook(found: ClusterState) -> Outlook:
    """Returns the present facts, what prevents a takeover, and a row for each node."""
    assessed = Assessment() if found.configuration is None else assess(found.configuration, found.kubernetes)
    return Outlook(
        tuple(_facts(found, assessed)),
        assessed.notes,
        (*_blockers(found), *assessed.blockers),
        tuple(_row(found, node) for node in found.nodes),
    )


def _facts(found: ClusterState, assessed: Assessment) -> Iterator[str]:
    ready = sum(node.ready for node in found.nodes)
    yield f"nodes: {len(found.nodes)}, {ready} of them ready"
    if found.kube_proxy is not None:
        yield f"kube-proxy: DaemonSet kube-system/kube-proxy, image {found.kube_proxy.image}, {_count(found.kube_proxy)}"
    if assessed.mode:
        yield f"configuration: ConfigMap kube-system/kube-proxy, mode {assessed.mode}, API server {assessed.server}"
    if found.agents is not None:
        yield f"agents: DaemonSet kube-system/nodeagent, image {found.agents.image}, {_count(found.agents)}"


def _count(daemonset: DaemonSet) -> str:
    ready = sum(pod.ready for pod in daemonset.pods)
    return f"{ready} pods ready"


def _blockers(found: ClusterState) -> Iterator[str]:
    if found.kube_proxy is None:
        yield f"there is no DaemonSet kube-system/kube-proxy: {OTHER_WAYS}"
    if found.configuration is None:
        yield "there is no ConfigMap kube-system/kube-proxy, from which the agents take their configuration"
    for node in found.nodes:
        if node.system == "linux" and node.architecture not in ARCHITECTURES:
            yield f"node {node.name} is {node.architecture}: there is no image for it"


def _row(found: ClusterState, node: Node) -> Mapping[str, str]:
    return {
        "node": node.name,
        "agent": _presence(found.agents, node.name),
        "kube_proxy": _presence(found.kube_proxy, node.name),
        "rules": "removed" if node.rules_removed else "there",
    }


def _presence(daemonset: DaemonSet | None, node: str) -> str:
    pods = daemonset.on(node) if daemonset is not None else ()
    if not pods:
        return "-"
    states = {"ending" if pod.leaving else "ready" if pod.ready else "not ready" for pod in pods}
    return ", ".join(sorted(states))
