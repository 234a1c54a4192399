"""Every kind of value: what is taken, in which canonical form, and what is refused in which words."""

from collections.abc import Callable

import pytest

from nodeagent.config.keys import KEYS, plain_option
from nodeagent.config.load import LoadedConfig

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("path", "written", "value"),
    [
        pytest.param("source.kubeconfig", "/etc/k", "/etc/k", id="path"),
        pytest.param("source.kubeconfig", '""', None, id="no path"),
        pytest.param("source.kubeconfig", "null", None, id="null is left out"),
        pytest.param("source.master", "https://10.0.0.1:6443/", ["https://10.0.0.1:6443"], id="URL"),
        pytest.param("source.master", "http://[fd00::1]:8080", ["http://[fd00::1]:8080"], id="URL with IPv6"),
        pytest.param("source.master", "https://a:1, https://b/", ["https://a:1", "https://b"], id="URLs in one text"),
        pytest.param("source.master", '["https://a:1", "https://b"]', ["https://a:1", "https://b"], id="URLs"),
        pytest.param("source.master", '""', [], id="no URL"),
        pytest.param("source.resyncPeriod", "1h30m", "1h30m0s", id="duration"),
        pytest.param("source.endpointsAPI", "endpoints", "endpoints", id="enumeration"),
        pytest.param("node.name", "Node-7 ", "node-7", id="node name is lower-cased"),
        pytest.param("node.address", "192.0.2.7", "192.0.2.7", id="address"),
        pytest.param("node.address", "0.0.0.0", None, id="unspecified IPv4 is refused"),
        pytest.param("node.address", '"::"', None, id="unspecified IPv6 is refused"),
        pytest.param("node.families", "auto", "auto", id="all families"),
        pytest.param("node.families", "[auto]", "auto", id="all families, as a list"),
        pytest.param("node.families", "IPv6", ["IPv6"], id="one family"),
        pytest.param("node.families", "[IPv6, IPv4]", ["IPv6", "IPv4"], id="families"),
        pytest.param("traffic.clusterCIDRs", "[10.0.0.0/8, 10.1.0.0/16]", ["10.0.0.0/8", "10.1.0.0/16"], id="CIDRs"),
        pytest.param("traffic.clusterCIDRs", "[10.1.2.3/16]", ["10.1.0.0/16"], id="host bits are cleared"),
        pytest.param("traffic.clusterCIDRs", "[]", [], id="no CIDR"),
        pytest.param("traffic.nodePortAddresses", "[all]", ["all"], id="all addresses"),
        pytest.param(
            "traffic.nodePortAddresses", "[primary, 192.0.2.0/24]", ["primary", "192.0.2.0/24"], id="keyword and CIDR"
        ),
        pytest.param("traffic.nodePortAddresses", "[]", ["primary"], id="an empty list is primary"),
        pytest.param("traffic.protectedPorts", "[22, '6443']", [22, 6443], id="ports, as text too"),
        pytest.param("traffic.protectedPorts", "[]", [], id="no port"),
        pytest.param("traffic.bridgeInterface", "cni0", "cni0", id="interface"),
        pytest.param("dataplane.interfaceName", "fifteen-letters", "fifteen-letters", id="longest interface name"),
        pytest.param("dataplane.minSyncPeriod", "250ms", "250ms", id="short duration"),
        pytest.param("dataplane.minSyncPeriod", '"0"', "0s", id="zero needs no unit"),
        pytest.param("dataplane.counters", "off", False, id="YAML's off"),
        pytest.param("conntrack.maxPerCore", "0", 0, id="count"),
        pytest.param("conntrack.udpTimeout", "90s", "1m30s", id="kernel timeout"),
        pytest.param("reporting.healthzBindAddress", "127.0.0.1:1", "127.0.0.1:1", id="lowest port"),
        pytest.param("reporting.healthzBindAddress", '"[::]:65535"', "[::]:65535", id="highest port, IPv6"),
        pytest.param("reporting.healthzBindAddress", "127.0.0.1", "127.0.0.1:10256", id="healthz' own port"),
        pytest.param("reporting.metricsBindAddress", '"::1"', "[::1]:10249", id="the metrics' own port"),
        pytest.param("reporting.healthzBindAddress", '""', "", id="off"),
        pytest.param(
            "reporting.metricsHostNames", "[Node-A.Example.com.]", ["node-a.example.com"], id="names of a host"
        ),
        pytest.param("logging.level", "debug", "debug", id="level"),
        pytest.param("process.oomScoreAdj", "-1000", -1000, id="lowest score"),
    ],
)
def test_taken(own: Load, path: str, written: str, value: object) -> None:
    group, name = path.split(".")
    loaded = own(f"{group}:\n  {name}: {written}\n")
    key = KEYS[path]
    assert plain_option(key, key.value_in(loaded.config)) == value


@pytest.mark.parametrize(
    ("path", "written", "reason"),
    [
        pytest.param("source.kubeconfig", "5", "must be a path, not 5", id="path"),
        pytest.param(
            "source.master", "10.0.0.1:6443", "'10.0.0.1:6443' is not a URL like https://10.0.0.1:6443", id="URL"
        ),
        pytest.param(
            "source.master", "https://h:0", "'https://h:0' is not a URL like https://10.0.0.1:6443", id="URL port"
        ),
        pytest.param(
            "source.master", "https://h:x", "'https://h:x' is not a URL like https://10.0.0.1:6443", id="URL text"
        ),
        pytest.param("source.resyncPeriod", "0s", "must be greater than 0", id="zero period"),
        pytest.param("source.resyncPeriod", "15", "must be a duration like 30s or 1h30m, not 15", id="bare number"),
        pytest.param("source.resyncPeriod", '"15"', 'missing unit in duration "15"', id="no unit"),
        pytest.param("source.resyncPeriod", "1d", 'unknown unit "d" in duration "1d"', id="days"),
        pytest.param(
            "source.endpointsAPI",
            "pods",
            "must be 'auto', 'endpointslices' or 'endpoints', not 'pods'",
            id="enumeration",
        ),
        pytest.param("node.name", "7", "must be a string, not 7", id="node name is a number"),
        pytest.param("node.name", '" "', "must not be empty", id="node name is blank"),
        pytest.param(
            "node.name",
            "a/b",
            "'a/b' is not a node name (at most 253 characters, without blanks and '/', ',', '=')",
            id="node name",
        ),
        pytest.param("node.address", "host", "'host' is not an IP address", id="address"),
        pytest.param("node.families", "[IPv4, IPv4]", "IPv4 is listed twice", id="family twice"),
        pytest.param("node.families", "[]", "must be 'auto' or a list of 'IPv4' and 'IPv6'", id="no family"),
        pytest.param(
            "node.families", "[IPv5]", "must be 'auto' or a list of 'IPv4' and 'IPv6', not 'IPv5'", id="unknown family"
        ),
        pytest.param(
            "node.families", "[[IPv4]]", "must be 'auto' or a list of 'IPv4' and 'IPv6', not ['IPv4']", id="nested list"
        ),
        pytest.param("traffic.detectLocalMode", "cidr", None, id="detection"),
        pytest.param(
            "traffic.clusterCIDRs",
            "[10.0.0.0/33]",
            "'10.0.0.0/33' is not a CIDR (an address, a slash and a prefix length, like 10.0.0.0/8)",
            id="prefix",
        ),
        pytest.param(
            "traffic.clusterCIDRs",
            "[10.0.0.0]",
            "'10.0.0.0' is not a CIDR (an address, a slash and a prefix length, like 10.0.0.0/8)",
            id="address without prefix",
        ),
        pytest.param("traffic.clusterCIDRs", "[10.0.0.0/8, 10.0.0.1/8]", "10.0.0.0/8 is listed twice", id="CIDR twice"),
        pytest.param("traffic.clusterCIDRs", "10.0.0.0/8", "must be a list, not '10.0.0.0/8'", id="no list"),
        pytest.param(
            "traffic.nodePortAddresses",
            "[localhost]",
            "'localhost' is not supported: node ports are never answered on loopback addresses",
            id="localhost",
        ),
        pytest.param(
            "traffic.nodePortAddresses", "[eth0]", "'eth0' is neither a CIDR nor 'primary' or 'all'", id="node ports"
        ),
        pytest.param(
            "traffic.protectedPorts", "[65536]", "65536 is not a port, a number from 1 to 65535", id="port too high"
        ),
        pytest.param(
            "traffic.protectedPorts", "[ssh]", "'ssh' is not a port, a number from 1 to 65535", id="no number"
        ),
        pytest.param("traffic.protectedPorts", "[22, '22']", "22 is listed twice", id="port twice"),
        pytest.param(
            "traffic.bridgeInterface",
            "sixteen-letters-",
            "'sixteen-letters-' is longer than the 15 bytes an interface name may have",
            id="long interface name",
        ),
        pytest.param(
            "dataplane.interfaceName",
            "a b",
            "'a b' is not an interface name (no '/', ':' or blanks)",
            id="interface name",
        ),
        pytest.param(
            "traffic.interfaceNamePrefix",
            "cali*",
            "'cali*' ends in a wildcard; give the prefix alone",
            id="wildcard",
        ),
        pytest.param("traffic.masqueradeAll", '"yes"', "must be a valid boolean, not 'yes'", id="boolean as text"),
        pytest.param("dataplane.minSyncPeriod", "-1s", "must not be negative", id="negative pause"),
        pytest.param("conntrack.min", "-1", "must be greater than or equal to 0, not -1", id="negative count"),
        pytest.param("conntrack.min", "1.5", "must be a valid integer, not 1.5", id="fraction"),
        pytest.param("conntrack.min", "true", "must be a valid integer, not True", id="boolean as number"),
        pytest.param(
            "conntrack.udpTimeout",
            "1500ms",
            "must be whole seconds, as the kernel keeps this timeout in seconds",
            id="fraction of a second",
        ),
        pytest.param(
            "reporting.healthzBindAddress", "127.0.0.1:0", "port '0' is not a number from 1 to 65535", id="port 0"
        ),
        pytest.param(
            "reporting.healthzBindAddress", "127.0.0.1:65536", "port '65536' is not a number from 1 to 65535", id="port"
        ),
        pytest.param(
            "reporting.healthzBindAddress",
            '":10256"',
            "must be IP:port (0.0.0.0 or [::] for any address); '' is not an IP address",
            id="no host",
        ),
        pytest.param(
            "reporting.healthzBindAddress",
            "localhost:1",
            "must be IP:port (0.0.0.0 or [::] for any address); 'localhost' is not an IP address",
            id="host name",
        ),
        pytest.param(
            "reporting.healthzBindAddress",
            '"fd00::g:1"',
            "must be IP:port, IPv6 in brackets, not 'fd00::g:1'",
            id="IPv6 without brackets",
        ),
        pytest.param("process.oomScoreAdj", "1001", "must be less than or equal to 1000, not 1001", id="score"),
    ],
)
def test_refused(own: Load, refused: Refuse, path: str, written: str, reason: str | None) -> None:
    group, name = path.split(".")
    lines = refused(own, f"{group}:\n  {name}: {written}\n")
    expected = reason or ("must be 'ClusterCIDR', 'NodeCIDR', 'BridgeInterface' or 'InterfaceNamePrefix', not 'cidr'")
    assert lines == [f"svc.yaml:4: {path}: {expected}"]
