"""Does the steps: changes the cluster, prints each change, and waits until it has taken effect."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from nodeagent.cli.migration.found import (
    AGENT,
    ALONE,
    BESIDE,
    KUBE_PROXY,
    PROXY_LABEL,
    RULES_REMOVED,
    ClusterState,
    Document,
)
from nodeagent.cli.migration.kubectl import Kubectl, KubectlFailed, for_each
from nodeagent.cli.migration.manifests import agents
from nodeagent.cli.migration.node_check import NodeFailed, check_node, remove_rules
from nodeagent.cli.migration.placement import is_taken_out, leave_all_nodes, leave_single_nodes, leaves_single_nodes
from nodeagent.cli.migration.reading import AGENT_IMAGE, read_cluster
from nodeagent.cli.migration.steps import Step, has_agent, has_kube_proxy, unready, without_agent

LOOK_SECONDS = 1.0


class TakeoverStopped(Exception):
    """A step cannot continue; one line gives the reason. Nothing was undone."""


class TakeoverOptions(Struct, frozen=True):
    """Options of the agents. seconds: how long each change may take until it has taken effect."""

    image: str | None = None
    components: tuple[str, ...] = ()
    kustomization: Path | None = None
    seconds: float = 300.0


class ManagedCluster:
    """Reads and changes one cluster. say: receives a line for each change and each check."""

    def __init__(self, kubectl: Kubectl, say: Callable[[str], None], seconds: float) -> None:
        self.kubectl = kubectl
        self.say = say
        self._seconds = seconds

    def read(self) -> ClusterState:
        return read_cluster(self.kubectl)

    def until(self, awaited: str, missing: Callable[[ClusterState], Sequence[str]]) -> ClusterState:
        """Waits until `missing` returns nothing, and returns that state. Raises TakeoverStopped if it takes too long."""
        end = time.monotonic() + self._seconds
        while True:
            found = self.read()
            lacking = missing(found)
            if not lacking:
                return found
            if time.monotonic() > end:
                raise TakeoverStopped(f"{awaited}: not in {self._seconds:g} s; still waiting for {_some(lacking)}")
            time.sleep(LOOK_SECONDS)

    def check(self, nodes: Sequence[str]) -> None:
        """Waits until each of the nodes passes the check. Recent changes may need a moment, so it is retried."""
        self.until_each("check", lambda found, node: check_node(self.kubectl, found, node), nodes)
        self.say(f"checked: {_some(nodes)}: the agent is healthy, the Service kubernetes answers")

    def until_each(self, awaited: str, look: Callable[[ClusterState, str], None], nodes: Sequence[str]) -> None:
        """Waits until `look` raises no NodeFailed for any node. Raises TakeoverStopped if that takes too long."""
        end = time.monotonic() + self._seconds
        left, failed = list(nodes), dict[str, str]()
        while left:
            failed = self._problems_by_node(look, left)
            left = [node for node in left if node in failed]
            if left and time.monotonic() > end:
                raise TakeoverStopped(f"{awaited}: {failed[left[0]]}")
            if left:
                time.sleep(LOOK_SECONDS)

    def _problems_by_node(self, look: Callable[[ClusterState, str], None], nodes: Sequence[str]) -> dict[str, str]:
        """Returns the problems of each node, as {node name: text}."""
        found = self.read()
        failed: dict[str, str] = {}

        def look_at(node: str) -> None:
            try:
                look(found, node)
            except (NodeFailed, KubectlFailed) as error:
                failed[node] = str(error)

        for_each(look_at, nodes)
        return failed

    def label(self, node: str, value: str | None) -> None:
        """Sets the label of a Node that names its proxy; None removes it."""
        self.kubectl.patch("node", node, {"metadata": {"labels": {PROXY_LABEL: value}}})
        self.say(f"changed: node/{node}: label {PROXY_LABEL} {'removed' if value is None else f'= {value}'}")

    def annotate(self, node: str, value: str | None) -> None:
        """Marks a Node as one that has nothing of kube-proxy any more; None removes the mark."""
        self.kubectl.patch("node", node, {"metadata": {"annotations": {RULES_REMOVED: value}}})

    def place_kube_proxy(self, patch: Document, what: str) -> None:
        """Changes where kube-proxy runs."""
        self.kubectl.patch("daemonset", KUBE_PROXY, patch)
        self.say(f"changed: daemonset.apps/{KUBE_PROXY}: {what}")

    def note_image(self, image: str | None) -> None:
        """Writes the image of our agents into an annotation of kube-proxy; None removes it. While the annotation exists, a node may
        still have something of our agents."""
        self.kubectl.patch("daemonset", KUBE_PROXY, {"metadata": {"annotations": {AGENT_IMAGE: image}}})


def do(step: Step, cluster: ManagedCluster, wanted: TakeoverOptions, canary: str) -> None:
    """Does one step, from any state that an earlier run left. Raises TakeoverStopped and KubectlFailed."""
    match step:
        case Step.CANARY:
            _canary(cluster, wanted, canary)
        case Step.EVERYWHERE:
            _everywhere(cluster, wanted)
        case Step.KUBE_PROXY_OUT:
            _kube_proxy_out(cluster)
        case Step.CLEAN:
            _clean(cluster)


def _canary(cluster: ManagedCluster, wanted: TakeoverOptions, node: str) -> None:
    _apply(cluster, wanted, canary=True)
    if {one.name: one.label for one in cluster.read().nodes}[node] not in (BESIDE, ALONE):
        cluster.label(node, BESIDE)
    cluster.until("the agent runs", lambda found: () if has_agent(found, node) else (node,))
    cluster.check((node,))
    kube_proxy = cluster.read().kube_proxy
    assert kube_proxy is not None
    if not leaves_single_nodes(kube_proxy):
        cluster.place_kube_proxy(
            leave_single_nodes(kube_proxy),
            f"leaves nodes with the label {PROXY_LABEL}={ALONE} (its pods restart on the others)",
        )
    cluster.label(node, ALONE)
    cluster.until("kube-proxy has left the node", lambda found: (node,) if has_kube_proxy(found, node) else ())
    cluster.until("the agent is ready", lambda found: unready(found, (node,)))
    cluster.check((node,))


def _everywhere(cluster: ManagedCluster, wanted: TakeoverOptions) -> None:
    _apply(cluster, wanted, canary=False)
    found = cluster.until("the agents run", without_agent)
    cluster.check(found.names)


def _kube_proxy_out(cluster: ManagedCluster) -> None:
    found = cluster.read()
    assert found.kube_proxy is not None
    if not is_taken_out(found.kube_proxy):
        cluster.place_kube_proxy(leave_all_nodes(found.kube_proxy), "leaves every node")
    found = cluster.until(
        "kube-proxy has left every node",
        lambda now: [pod.name for pod in now.kube_proxy.pods] if now.kube_proxy else (),
    )
    found = cluster.until("the agents are ready", lambda now: unready(now, now.names))
    for node in found.nodes:
        if node.label is not None:
            cluster.label(node.name, None)
    cluster.check(found.names)


def _clean(cluster: ManagedCluster) -> None:
    nodes = [node.name for node in cluster.read().nodes if not node.rules_removed]
    nodes = [name for name in cluster.read().names if name in nodes]
    cluster.until_each("removing kube-proxy's rules", partial(clean_node, cluster), nodes)
    cluster.check(nodes)


def clean_node(cluster: ManagedCluster, found: ClusterState, node: str) -> None:
    """Removes what kube-proxy left on a node, and notes that at the Node. Raises NodeFailed."""
    count = remove_rules(cluster.kubectl, found, node)
    cluster.annotate(node, "removed")
    cluster.say(f"changed: {node}: removed {count} tables, chains and rules of kube-proxy")


def _apply(cluster: ManagedCluster, wanted: TakeoverOptions, *, canary: bool) -> None:
    manifests = agents(
        cluster.kubectl,
        canary=canary,
        image=wanted.image,
        components=wanted.components,
        kustomization=wanted.kustomization,
    )
    for applied in cluster.kubectl.apply(manifests):
        cluster.say(f"applied: {applied}")
    made = cluster.read().agents
    if made is None:
        raise TakeoverStopped(f"the manifests have no DaemonSet kube-system/{AGENT}")
    cluster.note_image(made.image)


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
