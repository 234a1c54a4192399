"""Values that are each right and do not go together, and values that do nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.config.load import LoadedConfig

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., list[str]]

SERVICES = "traffic.serviceCIDRs"
CUT = "which it would cut off"
EITHER = "objects come either from a directory or from an API server"


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        pytest.param(
            "source: {kubeconfig: /a, manifests: /b}",
            [f"svc.yaml:3: source.manifests: cannot be combined with source.kubeconfig: {EITHER}"],
            id="two sources",
        ),
        pytest.param(
            "source:\n  manifests: /b\n  master: https://h\n  context: c",
            [
                f"svc.yaml:4: source.manifests: cannot be combined with source.{other}: {EITHER}"
                for other in ("context", "master")
            ],
            id="three sources",
        ),
        pytest.param(
            "source: {manifests: /b}\ndns: {enabled: true, listen: [169.254.20.10], pods: verified, autopath: true}",
            [
                "svc.yaml:4: dns.pods: verified needs the pods of an API server, and source.manifests has none",
                "svc.yaml:4: dns.autopath: needs the pods of an API server, and source.manifests has none",
            ],
            id="pods of manifests",
        ),
        pytest.param(
            "source: {context: c}", ["svc.yaml:3: source.context: needs source.kubeconfig"], id="context alone"
        ),
        pytest.param(
            "traffic: {detectLocalMode: BridgeInterface, interfaceNamePrefix: veth}",
            ["svc.yaml:3: traffic.detectLocalMode: BridgeInterface needs traffic.bridgeInterface"],
            id="mode without bridge",
        ),
        pytest.param(
            "traffic: {detectLocalMode: InterfaceNamePrefix}",
            ["svc.yaml:3: traffic.detectLocalMode: InterfaceNamePrefix needs traffic.interfaceNamePrefix"],
            id="mode without prefix",
        ),
        pytest.param(
            "dataplane:\n  syncPeriod: 1s\n  minSyncPeriod: 1001ms",
            ["svc.yaml:5: dataplane.minSyncPeriod: 1.001s must not be greater than dataplane.syncPeriod (1s)"],
            id="periods",
        ),
        pytest.param(
            "reporting: {metricsBindAddress: '127.0.0.1:10256'}",
            [
                "svc.yaml:3: reporting.metricsBindAddress: healthz at 0.0.0.0:10256 and metrics at 127.0.0.1:10256 cannot share a port"
            ],
            id="one port for two servers",
        ),
        pytest.param(
            "reporting: {healthzBindAddress: '[::]:10249'}",
            [
                "svc.yaml:3: reporting.healthzBindAddress: healthz at [::]:10249 and metrics at 127.0.0.1:10249 cannot share a port"
            ],
            id="one port in two families",
        ),
        pytest.param(
            "node: {families: [IPv4], address: fd00::1}",
            ["svc.yaml:3: node.address: fd00::1: its family is not in node.families (IPv4)"],
            id="address of another family",
        ),
        pytest.param(
            "node: {families: IPv6}\ntraffic: {clusterCIDRs: [10.0.0.0/8]}",
            ["svc.yaml:4: traffic.clusterCIDRs: 10.0.0.0/8: no family of these is in node.families (IPv6)"],
            id="pods of another family",
        ),
        pytest.param(
            "traffic: {serviceCIDRs: [10.96.0.0/12, 10.244.0.0/15], clusterCIDRs: [10.244.0.0/16]}",
            [f"svc.yaml:3: {SERVICES}: 10.244.0.0/15 overlaps with 10.244.0.0/16 (pods: traffic.clusterCIDRs), {CUT}"],
            id="services over pods",
        ),
        pytest.param(
            "traffic: {serviceCIDRs: ['fd00:244:1::/64'], clusterCIDRs: [10.244.0.0/16, 'fd00:244::/32']}",
            [
                f"svc.yaml:3: {SERVICES}: fd00:244:1::/64 overlaps with fd00:244::/32 (pods: traffic.clusterCIDRs), {CUT}"
            ],
            id="services inside pods",
        ),
        pytest.param(
            "node: {address: 192.168.0.5}\ntraffic: {serviceCIDRs: [192.168.0.0/16]}",
            [f"svc.yaml:4: {SERVICES}: 192.168.0.0/16 overlaps with 192.168.0.5/32 (this node: node.address), {CUT}"],
            id="services over the node",
        ),
        pytest.param(
            "traffic: {serviceCIDRs: [169.254.0.0/24]}",
            [f"svc.yaml:3: {SERVICES}: 169.254.0.0/24 overlaps with 169.254.0.0/16 (link-local), {CUT}"],
            id="services at link-local addresses",
        ),
    ],
)
def test_contradictions(own: Load, refused: Refuse, body: str, lines: list[str]) -> None:
    assert refused(own, body + "\n") == lines


def test_layers_can_contradict_each_other(own: Load, refused: Refuse) -> None:
    lines = refused(own, "source: {manifests: /b}\n", flags={"--kubeconfig": "/a"})
    assert lines == [f"svc.yaml:3: source.manifests: cannot be combined with source.kubeconfig: {EITHER}"]


def test_contradictions_are_reported_beside_wrong_values_unless_they_hang_on_them(own: Load, refused: Refuse) -> None:
    body = """\
    source: {kubeconfig: /a, manifests: /b}
    traffic: {detectLocalMode: BridgeInterface, bridgeInterface: 'a b'}
    """
    assert refused(own, body) == [
        "svc.yaml:4: traffic.bridgeInterface: 'a b' is not an interface name (no '/', ':' or blanks)",
        f"svc.yaml:3: source.manifests: cannot be combined with source.kubeconfig: {EITHER}",
    ]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("source: {kubeconfig: /a, context: c, master: 'https://h'}", id="one API server"),
        pytest.param("dataplane: {minSyncPeriod: 30s, syncPeriod: 30s}", id="equal periods"),
        pytest.param(
            "reporting: {healthzBindAddress: '', metricsBindAddress: '0.0.0.0:10256'}", id="one server is off"
        ),
        pytest.param(
            "reporting: {healthzBindAddress: '127.0.0.1:1', metricsBindAddress: '127.0.0.2:1'}", id="two addresses"
        ),
        pytest.param(
            "reporting: {healthzBindAddress: '0.0.0.0:1', metricsBindAddress: '[::1]:1'}", id="one port in two families"
        ),
        pytest.param(
            "traffic: {serviceCIDRs: [10.96.0.0/12, 'fd00:96::/108'], clusterCIDRs: [10.244.0.0/16, 'fd00:244::/56']}",
            id="services beside pods",
        ),
        pytest.param("node: {families: [IPv4]}\ntraffic: {clusterCIDRs: [10.0.0.0/8, 'fd00::/8']}", id="one is enough"),
    ],
)
def test_no_contradiction(own: Load, body: str) -> None:
    assert own(body + "\n").warnings == ()


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        pytest.param(
            "traffic: {detectLocalMode: NodeCIDR, clusterCIDRs: [10.0.0.0/8]}",
            "svc.yaml:3: traffic.clusterCIDRs: has no effect with traffic.detectLocalMode NodeCIDR",
            id="CIDRs",
        ),
        pytest.param(
            "traffic: {bridgeInterface: cni0}",
            "svc.yaml:3: traffic.bridgeInterface: has no effect with traffic.detectLocalMode ClusterCIDR",
            id="bridge",
        ),
        pytest.param(
            "traffic: {interfaceNamePrefix: veth}",
            "svc.yaml:3: traffic.interfaceNamePrefix: has no effect with traffic.detectLocalMode ClusterCIDR",
            id="prefix",
        ),
        pytest.param(
            "traffic: {nodePortAddresses: [primary, 127.0.0.0/8]}",
            "svc.yaml:3: traffic.nodePortAddresses: 127.0.0.0/8: node ports are never answered on loopback addresses",
            id="loopback",
        ),
    ],
)
def test_values_that_do_nothing_are_warned_of(own: Load, tmp_path: Path, body: str, warning: str) -> None:
    assert [text.replace(f"{tmp_path}/", "") for text in own(body + "\n").warnings] == [warning]
