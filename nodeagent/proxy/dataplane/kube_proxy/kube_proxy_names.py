"""Decides which names belong to kube-proxy (pure).

From its own cleanup of 1.36: pkg/proxy/{iptables,ipvs,nftables}/cleanup.go, and pkg/proxy/ipvs/ipset.go for the sets.
Not its own, and never touched, are the kubelet's chains (pkg/kubelet/kubelet_network_linux.go): KUBE-FIREWALL,
KUBE-KUBELET-CANARY, KUBE-IPTABLES-HINT and, of old kubelets, KUBE-MARK-DROP. KUBE-MARK-MASQ and KUBE-POSTROUTING,
which kubelets before 1.28 made too, are removed, as with `kube-proxy --cleanup`; such a kubelet makes its own again.
"""

TABLE = "kube-proxy"
INTERFACE = "kube-ipvs0"

MARK_MASQUERADE = "KUBE-MARK-MASQ"
POSTROUTING = "KUBE-POSTROUTING"
FORWARD = "KUBE-FORWARD"

CHAINS = {
    "nat": frozenset({
        "KUBE-SERVICES",
        "KUBE-NODEPORTS",
        POSTROUTING,
        MARK_MASQUERADE,
        "KUBE-PROXY-CANARY",
        "KUBE-NODE-PORT",
        "KUBE-LOAD-BALANCER",
    }),
    "filter": frozenset({
        "KUBE-SERVICES",
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-NODEPORTS",
        FORWARD,
        "KUBE-PROXY-FIREWALL",
        "KUBE-PROXY-CANARY",
        "KUBE-NODE-PORT",
        "KUBE-SOURCE-RANGES-FIREWALL",
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
    }),
    "mangle": frozenset({"KUBE-PROXY-CANARY"}),
}  # fmt: skip
"""Chains with fixed names, by table; of the iptables and the ipvs mode."""

_SERVICE_CHAINS = ("KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-", "KUBE-XLB-")
_JUMP_COMMENTS = ("kubernetes ", "kube-proxy ")

_SETS = frozenset({
    "KUBE-LOOP-BACK",
    "KUBE-CLUSTER-IP",
    "KUBE-EXTERNAL-IP",
    "KUBE-EXTERNAL-IP-LOCAL",
    "KUBE-LOAD-BALANCER",
    "KUBE-LOAD-BALANCER-LOCAL",
    "KUBE-LOAD-BALANCER-FW",
    "KUBE-LOAD-BALANCER-SOURCE-IP",
    "KUBE-LOAD-BALANCER-SOURCE-CIDR",
    "KUBE-NODE-PORT-TCP",
    "KUBE-NODE-PORT-LOCAL-TCP",
    "KUBE-NODE-PORT-UDP",
    "KUBE-NODE-PORT-LOCAL-UDP",
    "KUBE-NODE-PORT-SCTP",
    "KUBE-NODE-PORT-LOCAL-SCTP",
    "KUBE-NODE-PORT-SCTP-HASH",
    "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
    "KUBE-HEALTH-CHECK-NODE-PORT",
    "KUBE-IPVS-IPS",
})  # fmt: skip
_SET_NAME_LENGTH = 31
_SETS_OF_BOTH_FAMILIES = _SETS | {name.replace("KUBE-", "KUBE-6-", 1)[:_SET_NAME_LENGTH] for name in _SETS}


def is_chain(table: str, name: str) -> bool:
    """Returns whether this chain of an iptables table is kube-proxy's."""
    return name in CHAINS.get(table, ()) or (table == "nat" and name.startswith(_SERVICE_CHAINS))


def is_jump_comment(comment: str) -> bool:
    """Returns whether kube-proxy writes such a comment on the rules that lead from a built-in chain to its own.

    They are ``kubernetes service portals``, ``kubernetes postrouting rules``, ``kube-proxy firewall rules`` and so on.
    """
    return comment.startswith(_JUMP_COMMENTS)


def is_set(name: str) -> bool:
    """Returns whether the ipset is kube-proxy's; names for IPv6 begin with KUBE-6-, cut to 31 characters."""
    return name in _SETS_OF_BOTH_FAMILIES
