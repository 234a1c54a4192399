"""docs/semantics.md 6-8 and 50: what the Node, the service CIDRs and the configuration say about this node."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState
from nodeagent.model.in_use import host
from nodeagent.model.objects import LABEL_ZONE, Node, ServiceCIDR
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.node_state import DetectLocal, TranslationOptions, node_context, node_state

HERE = TranslationOptions(node_name="here")
CONSEQUENCE = "it is not used as a service range, and its unused addresses are not dropped"


def node(*addresses: str, zone: str | None = None, pod_cidrs: tuple[str, ...] = ()) -> Node:
    """``InternalIP 192.168.0.2`` and so on, as the kubelet reports them."""
    labels = {LABEL_ZONE: zone} if zone else {}
    listed = [dict(zip(("type", "address"), address.split(), strict=True)) for address in addresses]
    fields = {
        "metadata": {"name": "here", "labels": labels},
        "spec": {"podCIDRs": pod_cidrs},
        "status": {"addresses": listed},
    }
    return msgspec.convert(fields, Node)


def service_cidr(*cidrs: str, name: str = "kubernetes") -> ServiceCIDR:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"cidrs": cidrs}}, ServiceCIDR)


@pytest.mark.parametrize(
    ("addresses", "bind", "expected"),
    [
        pytest.param(["InternalIP 192.168.0.2"], "", ("192.168.0.2",), id="6-single"),
        pytest.param(["ExternalIP 203.0.113.9", "InternalIP 192.168.0.2"], "", ("192.168.0.2",), id="6-internal-first"),
        pytest.param(["Hostname here", "ExternalIP 203.0.113.9"], "", ("203.0.113.9",), id="6-external-if-need-be"),
        pytest.param(
            ["InternalIP 192.168.0.2", "InternalIP 192.168.0.3", "InternalIP 2001:DB8::2"],
            "",
            ("192.168.0.2", "2001:db8::2"),
            id="6-first-of-each-family",
        ),
        pytest.param(
            ["InternalIP 2001:db8::2", "ExternalIP 203.0.113.9"], "", ("2001:db8::2", "203.0.113.9"), id="6-ipv6-first"
        ),
        pytest.param(["InternalIP 192.168.0.2"], "192.168.1.2", ("192.168.1.2",), id="6-bind-address"),
        pytest.param(["InternalIP 192.168.0.2"], "2001:db8::9", ("2001:db8::9", "192.168.0.2"), id="6-bind-ipv6"),
        pytest.param(["InternalIP 192.168.0.2"], "0.0.0.0", ("192.168.0.2",), id="6-bind-unspecified"),
        pytest.param(["InternalIP bogus", "InternalIP 0.0.0.0"], "", (), id="unusable"),
        pytest.param([], "", (), id="6-none"),
    ],
)
def test_the_node_addresses_are_the_first_of_each_family(
    addresses: list[str], bind: str, expected: tuple[str, ...]
) -> None:
    settings = replace(HERE, bind_address=bind)
    assert node_context(node(*addresses), settings).node_addresses == expected


def test_7_the_zone_is_the_label_and_stays_when_the_node_is_gone() -> None:
    seen = node_context(node("InternalIP 192.168.0.2", zone="zone-a"), HERE)
    assert seen.zone == "zone-a"
    assert node_context(None, HERE, previous=seen) == seen
    assert node_context(node("InternalIP 192.168.0.2"), HERE, previous=seen).zone is None
    assert node_context(None, HERE).zone is None


def test_every_part_of_the_context_comes_from_the_node_or_the_options() -> None:
    """A part that `node_context` forgets to set would always have its default, whatever the operator configures."""
    options = replace(HERE, families=(Family.IPV6,), external_ips_enabled=False, protected_ports=(22,))
    made = msgspec.structs.asdict(node_context(node("InternalIP 2001:db8::2", zone="zone-a"), options))
    defaults = msgspec.structs.asdict(Context(node_name=""))
    assert [name for name in made if made[name] == defaults[name]] == []


def test_the_addresses_stay_while_the_node_reports_no_address() -> None:
    seen = node_context(node("InternalIP 192.168.0.2"), HERE)
    assert node_context(node(), HERE, previous=seen).node_addresses == ("192.168.0.2",)


@pytest.mark.parametrize(
    ("settings", "pods", "expected", "detects"),
    [
        pytest.param({"cluster_cidrs": ("10.244.7.0/16",)}, (), ("10.244.0.0/16",), True, id="50-cluster-cidr"),
        pytest.param(
            {"cluster_cidrs": ("10.244.0.0/16", "10.245.0.0/16", "fd00:244::/56")},
            (),
            ("10.244.0.0/16", "fd00:244::/56"),
            True,
            id="50-first-of-each-family",
        ),
        pytest.param({}, ("10.244.1.0/24",), (), False, id="50-no-cluster-cidr-no-detector"),
        pytest.param(
            {"detect_local": DetectLocal.NODE_CIDR},
            ("10.244.1.0/24", "fd00:244:1::/64"),
            ("10.244.1.0/24", "fd00:244:1::/64"),
            True,
            id="50-node-cidr",
        ),
        pytest.param(
            {"detect_local": DetectLocal.BRIDGE_INTERFACE, "cluster_cidrs": ("10.244.0.0/16",)},
            (),
            (),
            True,
            id="50-bridge",
        ),
        pytest.param({"detect_local": DetectLocal.INTERFACE_NAME_PREFIX}, (), (), True, id="50-prefix"),
        pytest.param(
            {"families": (Family.IPV4,), "cluster_cidrs": ("10.244.0.0/16", "fd00:244::/56")},
            (),
            ("10.244.0.0/16",),
            True,
            id="9-one-family",
        ),
    ],
)
def test_pods_are_detected_by_cidr_or_by_interface(
    settings: dict[str, Any], pods: tuple[str, ...], expected: tuple[str, ...], detects: bool
) -> None:
    chosen = replace(HERE, **settings)
    this = node("InternalIP 192.168.0.2", pod_cidrs=pods)
    context = node_context(this, chosen)
    assert node_state(this, [], chosen, context)[0].pod_cidrs == expected
    assert context.detects_pods is detects


def test_50_a_node_without_pod_cidrs_is_reported_and_a_missing_node_keeps_them() -> None:
    settings = replace(HERE, detect_local=DetectLocal.NODE_CIDR)
    context = Context(node_name="here", node_addresses=("192.168.0.2", "2001:db8::2"))
    state, problems = node_state(node(), [], settings, context)
    assert (state.pod_cidrs, [problem.reason for problem in problems]) == ((), ["NoPodCIDR"])
    known = NodeState(pod_cidrs=("10.244.1.0/24",))
    assert node_state(None, [], settings, context, known)[0].pod_cidrs == ("10.244.1.0/24",)
    assert node_state(None, [], settings, context)[0].pod_cidrs == ()


@pytest.mark.parametrize(
    ("objects", "expected", "reasons"),
    [
        pytest.param([], (), [], id="8-none"),
        pytest.param(
            [service_cidr("10.96.0.0/16", "fd00:96::/112"), service_cidr("10.96.128.0/17", "10.97.0.0/16")],
            ("10.96.0.0/15", "fd00:96::/112"),
            [],
            id="8-union-without-overlaps",
        ),
        pytest.param([service_cidr("010.096.000.007/16")], ("10.96.0.0/16",), [], id="15-canonical"),
        pytest.param([service_cidr("bogus", "10.96.0.0/16")], ("10.96.0.0/16",), ["InvalidCIDR"], id="invalid"),
        pytest.param(
            [service_cidr("0.0.0.0/0", "10.96.0.0/16")],
            ("10.96.0.0/16",),
            ["NodeAddressInServiceCIDR"],
            id="would-cut-the-node-off",
        ),
    ],
)
def test_service_cidrs_are_one_list_of_disjoint_ranges(
    objects: list[ServiceCIDR], expected: tuple[str, ...], reasons: list[str]
) -> None:
    this = node("InternalIP 192.168.0.2", "InternalIP 2001:db8::2")
    state, problems = node_state(this, objects, HERE, node_context(this, HERE))
    assert state.service_cidrs == expected
    assert [problem.reason for problem in problems] == reasons


@pytest.mark.parametrize(
    ("cidr", "what"),
    [
        pytest.param("126.0.0.0/7", "127.0.0.0/8 (loopback)", id="loopback"),
        pytest.param("127.1.0.0/24", "127.0.0.0/8 (loopback)", id="inside-loopback"),
        pytest.param("169.254.10.0/24", "169.254.0.0/16 (link-local)", id="link-local"),
        pytest.param("239.0.0.0/16", "224.0.0.0/4 (multicast)", id="multicast"),
        pytest.param("fe80::/64", "fe80::/10 (link-local)", id="ipv6-link-local"),
        pytest.param("ff00::/108", "ff00::/8 (multicast)", id="ipv6-multicast"),
        pytest.param("::/127", "::/128 (the unspecified address), ::1/128 (loopback)", id="ipv6-loopback"),
        pytest.param("10.240.0.0/13", "10.244.0.0/16 (pods: clusterCIDRs)", id="pods"),
        pytest.param("10.244.7.0/24", "10.244.0.0/16 (pods: clusterCIDRs)", id="some-pods"),
        pytest.param("10.9.0.0/16", "10.9.1.0/24 (pods of this Node)", id="pods-of-the-node"),
        pytest.param("192.168.1.0/24", "192.168.1.1/32 (a gateway of this node)", id="gateway"),
        pytest.param("172.16.0.0/16", "172.16.0.9/32 (the API server)", id="API-server"),
    ],
)
def test_8_a_service_range_that_contains_what_has_an_address_is_refused_and_reported(cidr: str, what: str) -> None:
    this = node("InternalIP 192.168.0.2", pod_cidrs=("10.9.1.0/24",))
    settings = replace(HERE, cluster_cidrs=("10.200.0.0/16", "10.244.0.0/16", "fd00:244::/56"))
    in_use = frozenset({host("192.168.1.1", "a gateway of this node"), host("172.16.0.9", "the API server")})
    objects = [service_cidr("10.96.0.0/16", "fd00:96::/112"), service_cidr(cidr, name="more")]
    state, problems = node_state(this, objects, settings, node_context(this, settings), in_use=in_use)
    assert state.service_cidrs == ("10.96.0.0/16", "fd00:96::/112")
    assert [str(problem) for problem in problems] == [
        f"ServiceCIDR more: ServiceCIDROverlap: {cidr} overlaps with {what}: {CONSEQUENCE}"
    ]


def test_8_a_range_is_used_again_when_nothing_stands_in_its_way() -> None:
    this, objects = node("InternalIP 192.168.0.2"), [service_cidr("10.96.0.0/16")]
    context = node_context(this, HERE)
    there = frozenset({host("10.96.0.1", "a gateway of this node")})
    before, problems = node_state(this, objects, HERE, context, in_use=there)
    assert (before.service_cidrs, [problem.reason for problem in problems]) == ((), ["ServiceCIDROverlap"])
    assert node_state(this, objects, HERE, context, before)[0].service_cidrs == ("10.96.0.0/16",)


def test_node_ports_follow_the_addresses_of_the_context() -> None:
    this = node("InternalIP 192.168.0.2", "InternalIP 2001:db8::2")
    state, problems = node_state(this, [], HERE, node_context(this, HERE))
    assert (state.node_port_cidrs, problems) == (("192.168.0.2/32", "2001:db8::2/128"), ())


@pytest.mark.parametrize("seen", [None, node(), node("InternalIP 192.168.0.2", zone="a", pod_cidrs=("10.244.1.0/24",))])
@pytest.mark.parametrize("detect_local", DetectLocal)
@pytest.mark.parametrize("bind", ["", "192.168.1.9"])
def test_of_their_own_result_the_same_sources_make_it_again(
    seen: Node | None, detect_local: DetectLocal, bind: str
) -> None:
    """So a pass may keep what it has while the sources are the same."""
    options = replace(HERE, detect_local=detect_local, bind_address=bind, cluster_cidrs=("10.244.0.0/16",))
    before = node("InternalIP 192.168.0.7", "InternalIP 2001:db8::7", zone="b", pod_cidrs=("10.244.7.0/24",))
    context = node_context(before, options)
    state, _ = node_state(before, [service_cidr("10.96.0.0/16")], options, context)
    found = []
    for _ in range(2):
        context = node_context(seen, options, context)
        state, problems = node_state(seen, [service_cidr("10.96.0.0/16", "bogus")], options, context, state)
        found.append((context, state, problems))
    assert found[0] == found[1]
