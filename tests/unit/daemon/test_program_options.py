"""How the configuration becomes the constant rules of each family."""

import pytest

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.options import NodeConfig, TrafficConfig
from nodeagent.config.values import DetectLocalMode
from nodeagent.daemon.part_options import program_options
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program.chain import PodDetection

NONE, CIDR = PodDetection.NONE, PodDetection.CIDR


def config(traffic: TrafficConfig) -> AgentConfig:
    return AgentConfig(node=NodeConfig(name="node-a"), traffic=traffic)


@pytest.mark.parametrize(
    ("cidrs", "ipv4", "ipv6"),
    [
        pytest.param((), NONE, NONE, id="no cluster CIDR: no client is recognised as a pod"),
        pytest.param(("10.244.0.0/16",), CIDR, NONE, id="IPv4 only: IPv6 must not take every source for a stranger"),
        pytest.param(("fd00:244::/32",), NONE, CIDR, id="IPv6 only"),
        pytest.param(("10.244.0.0/16", "fd00:244::/32"), CIDR, CIDR, id="both"),
    ],
)
def test_pods_are_detected_by_cidr_in_families_that_have_one(
    cidrs: tuple[str, ...], ipv4: PodDetection, ipv6: PodDetection
) -> None:
    configured = config(TrafficConfig(cluster_cidrs=cidrs))

    assert program_options(configured, Family.IPV4).pod_detection is ipv4
    assert program_options(configured, Family.IPV6).pod_detection is ipv6


@pytest.mark.parametrize(
    ("cidrs", "ipv4", "ipv6"),
    [
        pytest.param(("10.244.0.0/16", "fd00:244::/32"), "10.244.0.0/16", "fd00:244::/32", id="one of each family"),
        pytest.param(("10.244.0.0/16", "10.200.0.0/16"), "10.244.0.0/16", "", id="the first, as in the set"),
        pytest.param(("0.0.0.0/0",), "", "", id="everybody: there is nothing to compare"),
    ],
)
def test_the_range_of_pods_stands_in_the_rules(cidrs: tuple[str, ...], ipv4: str, ipv6: str) -> None:
    configured = config(TrafficConfig(cluster_cidrs=cidrs))

    assert [program_options(configured, family).pod_range for family in Family] == [ipv4, ipv6]


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize(
    ("traffic", "detection", "interface"),
    [
        pytest.param(TrafficConfig(detect_local_mode=DetectLocalMode.NODE_CIDR), CIDR, "", id="NodeCIDR"),
        pytest.param(
            TrafficConfig(detect_local_mode=DetectLocalMode.BRIDGE_INTERFACE, bridge_interface="cni0"),
            PodDetection.INTERFACE,
            "cni0",
            id="BridgeInterface",
        ),
        pytest.param(
            TrafficConfig(detect_local_mode=DetectLocalMode.INTERFACE_NAME_PREFIX, interface_name_prefix="veth"),
            PodDetection.INTERFACE_PREFIX,
            "veth",
            id="InterfaceNamePrefix",
        ),
    ],
)
def test_the_other_modes_serve_both_families(
    traffic: TrafficConfig, detection: PodDetection, interface: str, family: Family
) -> None:
    options = program_options(config(traffic), family)

    assert (options.pod_detection, options.interface, options.pod_range) == (detection, interface, "")
