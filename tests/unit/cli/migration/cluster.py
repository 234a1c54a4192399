"""Clusters to decide about, in few words."""

from nodeagent.cli.migration.found import ALONE, BESIDE, PROXY_LABEL, TAKEN_OUT, ClusterState, DaemonSet, Node, Pod

CONFIG = """
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}
clusterCIDR: 10.244.0.0/16
mode: "nftables"
"""
KUBECONFIG = "clusters: [{name: default, cluster: {server: 'https://192.0.2.1:6443'}}]"
FILES = {"config.conf": CONFIG, "kubeconfig.conf": KUBECONFIG}

NOT_ALONE: dict[str, object] = {"key": PROXY_LABEL, "operator": "NotIn", "values": [ALONE]}


def required(*terms: list[dict[str, object]]) -> dict[str, object]:
    """The affinity to nodes for which one of the terms holds."""
    nodes = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": nodes}}


CANARY = required([{"key": PROXY_LABEL, "operator": "Exists"}])
LEAVING = required([NOT_ALONE])


def pods(nodes: str, *, ready: bool = True) -> tuple[Pod, ...]:
    """A pod on each node, which are called by one letter each."""
    return tuple(Pod(f"pod-{node}", node, ready) for node in nodes)


def cluster(
    *,
    agents: str | None = None,
    unready: bool = False,
    canary: bool = False,
    kube_proxy: str = "ab",
    leaving: bool = False,
    out: bool = False,
    beside: str = "",
    alone: str = "",
    removed: str = "",
) -> ClusterState:
    """Nodes a and b. agents, kube_proxy: where their pods are; agents None: there is no DaemonSet of ours."""
    labels = {**dict.fromkeys(beside, BESIDE), **dict.fromkeys(alone, ALONE)}
    return ClusterState(
        tuple(Node(name, ready=True, label=labels.get(name), rules_removed=name in removed) for name in "ab"),
        DaemonSet({TAKEN_OUT: "taken-out"} if out else {}, LEAVING if leaving else {}, pods(kube_proxy)),
        None if agents is None else DaemonSet({}, CANARY if canary else {}, pods(agents, ready=not unready)),
        FILES,
        ("10.96.0.1",),
    )
