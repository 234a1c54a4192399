"""What nodeagent is known to work with, and from what: a test of this project, something read, or nothing."""

from collections.abc import Container, Iterable
from dataclasses import dataclass

TESTED, READ, UNKNOWN = "tested", "read", "unknown"
HERE = "this document"


@dataclass(frozen=True, slots=True)
class Support:
    """evidence: the test, or where it is written."""

    what: str
    state: str
    evidence: str


KUBERNETES = (
    Support("1.36", TESTED, HERE),
    Support(
        "1.33 to 1.35", READ, "a kube-apiserver 1.36 that emulates them was tried: [deploy.md](deploy.md#versions)"
    ),
    Support("1.32", READ, "[deploy.md](deploy.md#versions)"),
    Support("older", UNKNOWN, "EndpointSlices of `discovery.k8s.io/v1` are needed, which came with 1.21"),
)
KERNELS = (
    Support("6.18", TESTED, HERE),
    Support(
        "6.12 (Debian 13), 6.1 (Debian 12)",
        TESTED,
        "`make boot-kernels`: the agent and its tests against nftables, without Kubernetes",
    ),
    Support("5.x", UNKNOWN, "no machine with one was tried"),
)
NFT = (
    Support("1.0.6 (Debian 12; in the image)", TESTED, HERE),
    Support("1.1 (Debian 13)", TESTED, "`tests/contract/driver`: it lists the tables as 1.0.6 does"),
    Support("none", TESTED, "the agent speaks netlink; only `nodeagent check` and people need nft"),
)
RUNTIMES = (
    Support("containerd 1.6", TESTED, HERE),
    Support("containerd 2, CRI-O", UNKNOWN, "not tried; the agent does not speak with the runtime"),
)
OTHER_PLUGINS = (
    Support(
        "flannel",
        READ,
        "it hands pods to the plugin `bridge`, with hairpinMode (flannel-io/cni-plugin, README.md; flannel-io/flannel, "
        "Documentation/kube-flannel.yml); what its masquerading does beside ours: [neighbours.md](neighbours.md). Its daemon and vxlan were not tried",
    ),
    Support(
        "Calico with iptables or nftables",
        READ,
        "a link and a host route for each pod, as with `ptp`. Its default for nftables looks for kube-proxy's table "
        "(projectcalico/calico, felix/nftables, KubeProxyNftablesEnabledFn) and does not find it here: say `nftablesMode: Enabled` or leave it with iptables",
    ),
    Support(
        "Calico with eBPF",
        READ,
        "it replaces kube-proxy itself (projectcalico/calico, felix/design/bpf-services.md): run no second proxy",
    ),
    Support(
        "Cilium with kubeProxyReplacement",
        READ,
        "it serves Services in the socket, before netfilter (cilium/cilium, Documentation/network/kubernetes/kubeproxy-free.rst): run no second proxy",
    ),
    Support(
        "Cilium without it, or chained behind `ptp` or flannel",
        UNKNOWN,
        "whether its programs at the pods' links leave ClusterIPs to netfilter was neither tried nor read for a current release",
    ),
    Support("others", UNKNOWN, "not tried. What they need to leave alone: [neighbours.md](neighbours.md)"),
)

MATRIX = {
    "Kubernetes": KUBERNETES,
    "Linux": KERNELS,
    "nft": NFT,
    "Container runtime": RUNTIMES,
    "Network plugin": OTHER_PLUGINS,
}


def matrix(plugins: Iterable[str], run_with: Container[str]) -> dict[str, tuple[Support, ...]]:
    """By area. plugins: those that clusters can be made with; run_with: those with which specs have been run beside nodeagent."""
    ours = tuple(
        Support(f"`{name}`", TESTED, HERE) if name in run_with else Support(f"`{name}`", UNKNOWN, "not run yet")
        for name in plugins
    )
    return {**MATRIX, "Network plugin": (*ours, *OTHER_PLUGINS)}
