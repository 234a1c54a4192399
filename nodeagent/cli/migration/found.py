"""The state of a cluster that decides the next step: its nodes, kube-proxy and our agents (pure)."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, convert, field

NAMESPACE = "kube-system"
KUBE_PROXY = "kube-proxy"
AGENT = "nodeagent"
PROXY_LABEL = "nodeagent.io/proxy"
"""Label of a Node. With any value, the Node gets the agent from the first step on."""
BESIDE, ALONE = "beside", "alone"
"""Values of the label: the agent runs beside kube-proxy; kube-proxy has left this node."""
RULES_REMOVED = "nodeagent.io/kube-proxy-rules"
"""Annotation of a Node from which all of kube-proxy's rules were removed."""
TAKEN_OUT = "nodeagent.io/kube-proxy"
"""Key in kube-proxy's nodeSelector that no Node has."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
"""Key in a nodeAffinity."""
_REVISION = "controller-revision-hash"
"""Label of a DaemonSet's pods and ControllerRevisions."""

Document = dict[str, Any]


class Node(Struct, frozen=True):
    """A Node, as far as a takeover needs it.
    architecture, system: Kubernetes' names, amd64 and linux. label: the value of `PROXY_LABEL`; None without it."""

    name: str
    ready: bool
    label: str | None = None
    rules_removed: bool = False
    architecture: str = "amd64"
    system: str = "linux"


class Pod(Struct, frozen=True):
    """A pod of kube-proxy or of the agent.
    runs: whether its container does. current: whether it has the present template of its DaemonSet. leaving: whether
    it is being deleted."""

    name: str
    node: str
    ready: bool
    runs: bool = True
    current: bool = True
    leaving: bool = False


class DaemonSet(Struct, frozen=True):
    """A DaemonSet of kube-proxy or of the agent, with its pods.
    selector, affinity: of its pods. observed: whether the controller has seen the present template."""

    selector: Mapping[str, str] = {}
    affinity: Mapping[str, Any] = {}
    pods: tuple[Pod, ...] = ()
    image: str = ""
    observed: bool = True

    def on(self, node: str) -> tuple[Pod, ...]:
        """Returns its pods on this node, also those that are being deleted."""
        return tuple(pod for pod in self.pods if pod.node == node)

    @property
    def terms(self) -> tuple[Mapping[str, Any], ...]:
        """Conditions on the nodes of its pods; one of them must hold."""
        required = (self.affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
        return tuple(required.get("nodeSelectorTerms") or ())

    def has_condition_on(self, key: str) -> bool:
        """Returns whether every term has a condition on this label."""
        return bool(self.terms) and all(
            any(one.get("key") == key for one in term.get("matchExpressions") or ()) for term in self.terms
        )


class ClusterState(Struct, frozen=True):
    """The present state of the cluster, from which the next step follows.
    configuration: files of kube-proxy's ConfigMap. kubernetes: ClusterIPs of the Service `kubernetes`."""

    nodes: tuple[Node, ...]
    kube_proxy: DaemonSet | None = None
    agents: DaemonSet | None = None
    configuration: Mapping[str, str] | None = None
    kubernetes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of Linux nodes; no others can have the agent."""
        return tuple(node.name for node in self.nodes if node.system == "linux")


class _Metadata(Struct):
    name: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    generation: int = 0
    deletion_timestamp: str | None = field(default=None, name="deletionTimestamp")
    owners: tuple[Mapping[str, Any], ...] = field(default=(), name="ownerReferences")


def node_of(document: Document) -> Node:
    """Returns a Node object as a Node."""
    metadata = convert(document["metadata"], _Metadata)
    information = document["status"].get("nodeInfo", {})
    return Node(
        metadata.name,
        _is_true(document, "Ready"),
        metadata.labels.get(PROXY_LABEL),
        metadata.annotations.get(RULES_REMOVED) == "removed",
        information.get("architecture", "amd64"),
        information.get("operatingSystem", "linux"),
    )


def daemonset_of(
    document: Document | None, pods: Sequence[Document], revisions: Sequence[Document]
) -> DaemonSet | None:
    """Returns a DaemonSet object as a DaemonSet, with those of the pods that it owns; None for None.
    revisions: ControllerRevisions, of which the newest that it owns is its present template; the controller may not have
    written that one yet."""
    if document is None:
        return None
    name = document["metadata"]["name"]
    spec = document["spec"]["template"]["spec"]
    observed = document.get("status", {}).get("observedGeneration", 0) >= document["metadata"].get("generation", 0)
    revision = _present_revision([one for one in revisions if _owner(one) == name])
    own = tuple(_pod_of(pod, revision) for pod in pods if _owner(pod) == name)
    return DaemonSet(
        spec.get("nodeSelector") or {}, spec.get("affinity") or {}, own, spec["containers"][0]["image"], observed
    )


def _present_revision(revisions: Sequence[Document]) -> str | None:
    """Returns the hash of the newest of a DaemonSet's revisions, or None."""
    newest = max(revisions, key=lambda one: one["revision"], default=None)
    label: str | None = None if newest is None else newest["metadata"]["labels"].get(_REVISION)
    return label


def _pod_of(document: Document, revision: str | None) -> Pod:
    metadata = convert(document["metadata"], _Metadata)
    return Pod(
        metadata.name,
        document["spec"].get("nodeName", ""),
        _is_true(document, "Ready"),
        any("running" in one.get("state", {}) for one in document.get("status", {}).get("containerStatuses", ())),
        metadata.labels.get(_REVISION) == revision,
        metadata.deletion_timestamp is not None,
    )


def _owner(document: Document) -> str:
    """Returns the name of the DaemonSet that owns a pod or a ControllerRevision; empty without one."""
    owners = document["metadata"].get("ownerReferences", ())
    return next((one["name"] for one in owners if one.get("kind") == "DaemonSet"), "")


def _is_true(document: Document, condition: str) -> bool:
    found = document.get("status", {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in found)
