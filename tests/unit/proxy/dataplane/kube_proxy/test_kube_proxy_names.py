"""Which names are kube-proxy's, and which only look like it."""

import pytest

from nodeagent.proxy.dataplane.kube_proxy.kube_proxy_names import is_chain, is_jump_comment, is_set


@pytest.mark.parametrize(
    ("table", "chain", "expected"),
    [
        pytest.param("nat", "KUBE-SERVICES", True, id="dispatch"),
        pytest.param("filter", "KUBE-SERVICES", True, id="rejects of services without endpoints"),
        pytest.param("nat", "KUBE-SVC-NPX46M4PTMTKRN6Y", True, id="service"),
        pytest.param("nat", "KUBE-SVL-NPX46M4PTMTKRN6Y", True, id="service with local endpoints"),
        pytest.param("nat", "KUBE-SEP-4AXO4NLJZ3JQMQUN", True, id="endpoint"),
        pytest.param("nat", "KUBE-EXT-NPX46M4PTMTKRN6Y", True, id="external"),
        pytest.param("nat", "KUBE-FW-NPX46M4PTMTKRN6Y", True, id="source ranges"),
        pytest.param("nat", "KUBE-XLB-NPX46M4PTMTKRN6Y", True, id="load balancer of 1.23 and older"),
        pytest.param("filter", "KUBE-SVC-NPX46M4PTMTKRN6Y", False, id="services only have chains in nat"),
        pytest.param("mangle", "KUBE-PROXY-CANARY", True, id="canary"),
        pytest.param("nat", "KUBE-LOAD-BALANCER", True, id="ipvs mode"),
        pytest.param("filter", "KUBE-FIREWALL", False, id="kubelet: localnet"),
        pytest.param("nat", "KUBE-KUBELET-CANARY", False, id="kubelet: canary"),
        pytest.param("mangle", "KUBE-IPTABLES-HINT", False, id="kubelet: hint"),
        pytest.param("nat", "KUBE-MARK-DROP", False, id="old kubelet: drop mark"),
        pytest.param("nat", "KUBE-HOSTPORTS", False, id="kubenet: host ports"),
        pytest.param("filter", "KUBE-ROUTER-INPUT", False, id="kube-router: policies"),
        pytest.param("filter", "KUBE-POD-FW-3L5DU3EXCEPTION", False, id="kube-router: pod firewall"),
        pytest.param("raw", "KUBE-SERVICES", False, id="a table it does not use"),
    ],
)
def test_chains(table: str, chain: str, expected: bool) -> None:
    assert is_chain(table, chain) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("KUBE-CLUSTER-IP", True, id="IPv4"),
        pytest.param("KUBE-6-CLUSTER-IP", True, id="IPv6"),
        pytest.param("KUBE-6-LOAD-BALANCER-SOURCE-CID", True, id="cut to 31 characters"),
        pytest.param("KUBE-6-LOAD-BALANCER-SOURCE-CIDR", False, id="too long for a set"),
        pytest.param("KUBE-DST-3YNVZWWGX3UQQ4VQ", False, id="kube-router"),
        pytest.param("cali40all-ipam-pools", False, id="Calico"),
    ],
)
def test_sets(name: str, expected: bool) -> None:
    assert is_set(name) is expected


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        pytest.param("kubernetes service portals", True, id="iptables mode"),
        pytest.param("kube-proxy firewall rules", True, id="ipvs mode"),
        pytest.param("", False, id="none"),
        pytest.param("our kubernetes rules", False, id="of somebody else"),
    ],
)
def test_comments_of_jumps(comment: str, expected: bool) -> None:
    assert is_jump_comment(comment) is expected
