"""Which specs of `e2e.test` are run: all of sig-network but those that this table leaves out, with the reason."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

AREA = "[sig-network]"
CONFORMANCE_LABEL = "[Conformance]"
CONFORMANCE, DUAL_STACK, OTHERS = "conformance", "dual-stack", "others"
KINDS = (CONFORMANCE, DUAL_STACK, OTHERS)
"""A cluster that lacks one of the first kind may not be called Kubernetes."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Specs that are not run, for a regular expression finds something in their names."""

    pattern: str
    reason: str


LEFT_OUT = (
    LeftOut(r"Feature:LoadBalancer\b", "need a cloud's load balancers"),
    LeftOut(r"Type LoadBalancer$", "need a cloud's load balancers"),
    LeftOut(
        r"Feature:NetworkPolicy\b|Feature:ClusterNetworkPolicy|NetworkPolicyLegacy",
        "a network plugin's work: neither proxy has network policies",
    ),
    LeftOut(r"(?i)\bsctp\b|SCTPConnectivity", "the kernel of this machine has no SCTP"),
    LeftOut(r"Internet connection|Feature:Networking-(IPv4|IPv6|DNS)", "need the internet"),
    LeftOut(r"\[Provider:GCE\]", "asks for names that only Google's machines have"),
    LeftOut(r"Feature:KubeProxyDaemonSetMigration", "install kube-proxy another way"),
    LeftOut(r"Feature:KubeProxyNFAcct", "looks for a metric of kube-proxy that counts in a table of iptables"),
    LeftOut(r"\[Disruptive\]", "restart parts of the node over SSH"),
    LeftOut(r"DNS configMap nameserver", "rewrite CoreDNS' ConfigMap"),
    LeftOut(r"invalid conntrack state bug", "its image holds a program of its own, which no archive of a release has"),
    LeftOut(r"Feature:PerformanceDNS", "makes 10,000 Services; `make bench-names` measures that"),
    LeftOut(r"Feature:Networking-Performance", "measures the machine's links, not Services"),
)


def reason_for_leaving_out(spec: str) -> str | None:
    """None for one that is run."""
    return next((one.reason for one in LEFT_OUT if re.search(one.pattern, spec)), None)


def focus_area() -> str:
    """A regular expression for all of them."""
    return re.escape(AREA)


def focus(specs: Iterable[str]) -> str:
    """A regular expression, in Go's dialect, that finds these specs and no others."""
    return "|".join(f"{re.escape(spec)}$" for spec in specs)


def kind(spec: str) -> str:
    """One of KINDS."""
    if CONFORMANCE_LABEL in spec:
        return CONFORMANCE
    return DUAL_STACK if "[Feature:IPv6DualStack]" in spec else OTHERS


def chosen(specs: Iterable[str], wanted: str) -> list[str]:
    """Those of a kind that are run."""
    return [spec for spec in specs if kind(spec) == wanted and reason_for_leaving_out(spec) is None]
