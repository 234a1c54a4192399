"""kube-proxy's own configuration, imported as it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.keys import KEYS, plain_option
from nodeagent.config.kube_proxy_fields import KUBE_PROXY_FIELDS
from nodeagent.config.load import LoadedConfig, load_config
from nodeagent.config.options import NodeConfig, SourceConfig, TrafficConfig

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., list[str]]

DATA = Path(__file__).parent / "data"
ANSWERS_LESS = (
    "node ports answer at the node's primary addresses only; kube-proxy in mode iptables answers at every address of "
    "the node (nodePortAddresses: [all])"
)


def test_the_config_map_of_kubeadm_works_as_it_is() -> None:
    file = DATA / "kubeadm-config-map.yaml"
    loaded = load_config(file=file, flags={}, environment={}, hostname="worker-1")
    assert loaded.config == AgentConfig(
        node=NodeConfig(name="worker-1"),
        source=SourceConfig(kubeconfig=Path("/var/lib/kube-proxy/kubeconfig.conf")),
        traffic=TrafficConfig(cluster_cidrs=("10.244.0.0/16",)),
    )
    assert loaded.ignored == ()
    assert loaded.warnings == (ANSWERS_LESS,)
    assert loaded.origins["source.kubeconfig"] == f"file {file}:11"
    assert loaded.origins["traffic.clusterCIDRs"] == f"file {file}:13"
    assert loaded.origins["dataplane.syncPeriod"] == "default"


def test_a_file_with_all_of_kube_proxys_defaults_has_nothing_to_ignore() -> None:
    loaded = load_config(file=DATA / "kube-proxy-defaults.yaml", flags={}, environment={}, hostname="worker-1")
    differing = {
        key.path: plain_option(key, key.value_in(loaded.config))
        for key in KEYS.values()
        if not key.required and key.value_in(loaded.config) != key.default
    }
    assert differing == {"dataplane.minSyncPeriod": "1s"}
    assert [field.key for field in loaded.ignored] == ["mode"]


@pytest.mark.parametrize(
    ("body", "path", "value"),
    [
        ("clientConnection: {kubeconfig: /k}", "source.kubeconfig", "/k"),
        ("configSyncPeriod: 1m", "source.resyncPeriod", "1m0s"),
        ("hostnameOverride: Node-1", "node.name", "node-1"),
        ("bindAddress: 192.0.2.1", "node.address", "192.0.2.1"),
        ("detectLocalMode: NodeCIDR", "traffic.detectLocalMode", "NodeCIDR"),
        ("clusterCIDR: 10.0.0.0/8", "traffic.clusterCIDRs", ["10.0.0.0/8"]),
        ("clusterCIDR: '10.0.0.0/8,fd00::/8'", "traffic.clusterCIDRs", ["10.0.0.0/8", "fd00::/8"]),
        ("nodePortAddresses: [all]", "traffic.nodePortAddresses", ["all"]),
        ("nodePortAddresses: [192.0.2.0/24, localhost]", "traffic.nodePortAddresses", ["192.0.2.0/24"]),
        ("featureGates: {AllowServiceExternalIPs: false}", "traffic.externalIPs", False),
        ("nftables: {masqueradeAll: true}", "traffic.masqueradeAll", True),
        ("nftables: {minSyncPeriod: 250ms}", "dataplane.minSyncPeriod", "250ms"),
        ("nftables: {syncPeriod: 1m}", "dataplane.syncPeriod", "1m0s"),
        ("iptables: {masqueradeAll: true}", "traffic.masqueradeAll", True),
        ("mode: ipvs\niptables: {masqueradeAll: true}", "traffic.masqueradeAll", True),
        ("mode: nftables\niptables: {masqueradeAll: true}", "traffic.masqueradeAll", False),
        ("iptables: {minSyncPeriod: 10s}", "dataplane.minSyncPeriod", "0s"),
        ("conntrack: {maxPerCore: 0}", "conntrack.maxPerCore", 0),
        ("conntrack: {min: 5}", "conntrack.min", 5),
        ("conntrack: {tcpEstablishedTimeout: 0s}", "conntrack.tcpEstablishedTimeout", "0s"),
        ("conntrack: {tcpCloseWaitTimeout: 2h}", "conntrack.tcpCloseWaitTimeout", "2h0m0s"),
        ("conntrack: {tcpBeLiberal: true}", "conntrack.tcpBeLiberal", True),
        ("conntrack: {udpTimeout: 10s}", "conntrack.udpTimeout", "10s"),
        ("conntrack: {udpStreamTimeout: 10s}", "conntrack.udpStreamTimeout", "10s"),
        ("healthzBindAddress: 127.0.0.1", "reporting.healthzBindAddress", "127.0.0.1:10256"),
        ("metricsBindAddress: 0.0.0.0:9100", "reporting.metricsBindAddress", "0.0.0.0:9100"),
        ("bindAddress: '::'", "reporting.healthzBindAddress", "[::]:10256"),
        ("bindAddress: fd00::1", "reporting.metricsBindAddress", "[::1]:10249"),
        ("bindAddress: '::'\nmetricsBindAddress: 127.0.0.1:1", "reporting.metricsBindAddress", "127.0.0.1:1"),
        ("bindAddressHardFail: true", "reporting.bindAddressHardFail", True),
        ("logging: {format: json}", "logging.format", "json"),
        ("logging: {verbosity: 2}", "logging.level", "info"),
        ("logging: {verbosity: 4}", "logging.level", "debug"),
        ("oomScoreAdj: 0", "process.oomScoreAdj", 0),
        (
            "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}",
            "traffic.bridgeInterface",
            "cni0",
        ),
        (
            "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}",
            "traffic.interfaceNamePrefix",
            "veth",
        ),
    ],
)
def test_fields_that_apply(kube_proxy: Load, body: str, path: str, value: object) -> None:
    key = KEYS[path]
    assert plain_option(key, key.value_in(kube_proxy(body + "\n").config)) == value


@pytest.mark.parametrize(
    ("body", "ignored"),
    [
        ("featureGates: {TopologyAwareHints: true}", "featureGates"),
        ("featureGates: {AllowServiceExternalIPs: false, TopologyAwareHints: true}", "featureGates"),
        ("clientConnection: {qps: 50}", "clientConnection.qps"),
        ("clientConnection: {burst: 100}", "clientConnection.burst"),
        ("clientConnection: {contentType: application/cbor}", "clientConnection.contentType"),
        ("clientConnection: {acceptContentTypes: a/b}", "clientConnection.acceptContentTypes"),
        ("logging: {flushFrequency: 10s}", "logging.flushFrequency"),
        ("logging: {flushFrequency: 1000}", "logging.flushFrequency"),
        ("logging: {vmodule: [{filePattern: proxier, verbosity: 9}]}", "logging.vmodule"),
        ("logging: {options: {json: {infoBufferSize: 64Ki}}}", "logging.options.json.infoBufferSize"),
        ("enableProfiling: true", "enableProfiling"),
        ("mode: iptables", "mode"),
        ("mode: ipvs", "mode"),
        ("iptables: {masqueradeBit: 15}", "iptables.masqueradeBit"),
        ("iptables: {masqueradeBit: 0}", "iptables.masqueradeBit"),
        ("iptables: {syncPeriod: 1m}", "iptables.syncPeriod"),
        ("iptables: {minSyncPeriod: 10s}", "iptables.minSyncPeriod"),
        ("iptables: {snatNodeInternalIP: true}", "iptables.snatNodeInternalIP"),
        ("mode: nftables\niptables: {masqueradeAll: true}", "iptables.masqueradeAll"),
        ("nftables: {masqueradeBit: 15}", "nftables.masqueradeBit"),
        ("ipvs: {scheduler: wrr}", "ipvs.scheduler"),
        ("ipvs: {excludeCIDRs: [10.0.0.0/8]}", "ipvs.excludeCIDRs"),
        ("ipvs: {strictARP: true}", "ipvs.strictARP"),
        ("ipvs: {tcpTimeout: 1s}", "ipvs.tcpTimeout"),
        ("winkernel: {enableDSR: true}", "winkernel.enableDSR"),
        ("portRange: 1-2", "portRange"),
        ("windowsRunAsService: true", "windowsRunAsService"),
        ("nodePortAddresses: [all, localhost]", "nodePortAddresses: localhost"),
        ("udpIdleTimeout: 1s", "udpIdleTimeout"),
        ("conntrack: {max: 5}", "conntrack.max"),
    ],
)
def test_fields_without_effect_are_listed(kube_proxy: Load, body: str, ignored: str) -> None:
    loaded = kube_proxy(body + "\n")
    (field,) = loaded.ignored
    assert field.key == ignored
    assert field.reason
    assert field.origin.line >= 3


@pytest.mark.parametrize(
    "body",
    [
        "mode: nftables",
        "mode: ''",
        "iptables: {masqueradeBit: 14}",
        "iptables: {syncPeriod: 30000ms}",
        "iptables: {localhostNodePorts: false}",
        "ipvs: {scheduler: rr}",
        "clientConnection: {qps: 5, burst: 10}",
        "clientConnection: {qps: 0.0}",
        "clientConnection:",
        "featureGates: {}",
        "udpIdleTimeout: 250ms",
    ],
)
def test_a_field_at_its_default_is_not_worth_a_word(kube_proxy: Load, body: str) -> None:
    assert kube_proxy(body + "\n").ignored == ()


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("ipTables: {}", "3: ipTables: unknown key"),
        ("clusterCidr: 10.0.0.0/8", "3: clusterCidr: unknown key; did you mean clusterCIDR?"),
        (
            "nftables: {masqueradeAl: true}",
            "3: nftables.masqueradeAl: unknown key; did you mean nftables.masqueradeAll?",
        ),
        ("nftables: 5", "3: nftables: must be a mapping"),
        ("mode: userspace", "3: mode: must be iptables, ipvs or nftables, or left out"),
        ("mode: 5", "3: mode: must be a string, not 5"),
        ("clusterCIDR: [10.0.0.0/8]", "3: clusterCIDR: must be a string, not ['10.0.0.0/8']"),
        (
            "clusterCIDR: 10.0.0.0/8,11.0.0.0/8",
            "3: clusterCIDR: must be one CIDR, or two of different families with a comma in between",
        ),
        (
            "clusterCIDR: 10.0.0.0",
            "3: clusterCIDR: '10.0.0.0' is not a CIDR (an address, a slash and a prefix length, like 10.0.0.0/8)",
        ),
        ("iptables: {masqueradeAll: 1}", "3: iptables.masqueradeAll: must be true or false, not 1"),
        ("iptables: {syncPeriod: 30}", "3: iptables.syncPeriod: must be a duration like 30s or 1h30m, not 30"),
        ("ipvs: {syncPeriod: 30}", "3: ipvs.syncPeriod: must be a duration like 30s or 1h30m, not 30"),
        ("ipvs: {syncPeriod: 1d}", '3: ipvs.syncPeriod: unknown unit "d" in duration "1d"'),
        ("ipvs: {excludeCIDRs: [1]}", "3: ipvs.excludeCIDRs: must be a list of strings, not [1]"),
        ("featureGates: {A: 1}", "3: featureGates: must be a mapping from names to true or false, not {'A': 1}"),
        ("conntrack: {maxPerCore: true}", "3: conntrack.maxPerCore: must be a whole number, not True"),
        ("conntrack: {min: -1}", "3: conntrack.min: must be greater than or equal to 0, not -1"),
        ("oomScoreAdj: 2000", "3: oomScoreAdj: must be less than or equal to 1000, not 2000"),
        ("healthzBindAddress: 127.0.0.1:0", "3: healthzBindAddress: port '0' is not a number from 1 to 65535"),
        ("bindAddress: eth0", "3: bindAddress: 'eth0' is not an IP address"),
        ("logging: {format: xml}", "3: logging.format: must be 'text' or 'json', not 'xml'"),
        (
            "nodePortAddresses: [localhost]",
            "3: nodePortAddresses: 'localhost' is not supported: node ports are never answered on loopback addresses",
        ),
        (
            "nodePortAddresses:\n- localhost\n- 10.0.0.0/8\n- x",
            "6: nodePortAddresses: 'x' is neither a CIDR nor 'primary' or 'all'",
        ),
        (
            "nftables: {minSyncPeriod: 1m}",
            "3: nftables.minSyncPeriod: 1m0s must not be greater than dataplane.syncPeriod (30s)",
        ),
        (
            "detectLocalMode: BridgeInterface",
            "3: detectLocalMode: BridgeInterface needs traffic.bridgeInterface",
        ),
    ],
)
def test_wrong_fields_are_errors_under_their_own_name(kube_proxy: Load, refused: Refuse, body: str, line: str) -> None:
    assert refused(kube_proxy, body + "\n") == [f"svc.yaml:{line}"]


def test_in_nftables_mode_the_default_of_node_ports_is_the_same_and_not_worth_a_word(kube_proxy: Load) -> None:
    assert kube_proxy("mode: nftables\n").warnings == ()
    assert kube_proxy("nodePortAddresses: [primary]\n").warnings == ()
    assert kube_proxy("mode: iptables\n").warnings == (ANSWERS_LESS,)


def test_every_field_either_becomes_an_option_or_says_why_not() -> None:
    for field in KUBE_PROXY_FIELDS.values():
        assert bool(field.becomes) != bool(field.reason)
        assert not field.becomes or field.becomes in KEYS
