"""Command-line flags: the option that each sets, and kube-proxy's flags that have no effect."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nodeagent.config.config_problems import ConfigProblem, IgnoredField, Origin
from nodeagent.config.keys import KEYS, parse_text
from nodeagent.config.kube_proxy import level_of_verbosity
from nodeagent.config.layer import Layer, Setting

VERBOSITY = "-v"
DEBUG_VERBOSITY = "4"  # what a bare `-v` or `--verbose` stands for


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that sets option `path`; `spellings` are other names of the same flag."""

    name: str
    path: str
    spellings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IgnoredFlag:
    """A flag of kube-proxy without effect. `usual`: values for which no note is printed."""

    name: str
    reason: str
    usual: tuple[str, ...] = ()


_FLAGS: tuple[Flag, ...] = (
    Flag("--kubeconfig", "source.kubeconfig"),
    Flag("--context", "source.context"),
    Flag("--master", "source.master"),
    Flag("--manifests", "source.manifests"),
    Flag("--snapshot", "source.snapshot"),
    Flag("--endpoints-api", "source.endpointsAPI"),
    Flag("--config-sync-period", "source.resyncPeriod"),
    Flag("--node-name", "node.name"),
    Flag("--hostname-override", "node.name"),
    Flag("--bind-address", "node.address"),
    Flag("--families", "node.families"),
    Flag("--detect-local-mode", "traffic.detectLocalMode"),
    Flag("--cluster-cidr", "traffic.clusterCIDRs"),
    Flag("--pod-bridge-interface", "traffic.bridgeInterface"),
    Flag("--pod-interface-name-prefix", "traffic.interfaceNamePrefix"),
    Flag("--masquerade-all", "traffic.masqueradeAll"),
    Flag("--service-cidr", "traffic.serviceCIDRs"),
    Flag("--external-ips", "traffic.externalIPs"),
    Flag("--nodeport-addresses", "traffic.nodePortAddresses"),
    Flag("--protected-ports", "traffic.protectedPorts"),
    Flag("--table-ownership", "dataplane.tableOwnership"),
    Flag("--service-interface", "dataplane.serviceInterface"),
    Flag("--min-sync-period", "dataplane.minSyncPeriod"),
    Flag("--sync-period", "dataplane.syncPeriod"),
    Flag("--conntrack-max-per-core", "conntrack.maxPerCore"),
    Flag("--conntrack-min", "conntrack.min"),
    Flag("--conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout"),
    Flag("--conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout"),
    Flag("--conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal"),
    Flag("--conntrack-udp-timeout", "conntrack.udpTimeout"),
    Flag("--conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout"),
    Flag("--dns", "dns.enabled"),
    Flag("--dns-listen", "dns.listen"),
    Flag("--dns-zones", "dns.zones"),
    Flag("--dns-upstreams", "dns.upstreams"),
    Flag("--dns-stub-zones", "dns.stubZones"),
    Flag("--dns-pods", "dns.pods"),
    Flag("--dns-autopath", "dns.autopath"),
    Flag("--dns-query-log", "dns.queryLog"),
    Flag("--dns-handover", "dns.handover"),
    Flag("--dns-clients", "dns.clients"),
    Flag("--healthz-bind-address", "reporting.healthzBindAddress"),
    Flag("--metrics-bind-address", "reporting.metricsBindAddress"),
    Flag("--bind-address-hard-fail", "reporting.bindAddressHardFail"),
    Flag("--socket", "reporting.socket"),
    Flag("--events", "reporting.events"),
    Flag(VERBOSITY, "logging.level", spellings=("--v", "--verbose")),
    Flag("--log-level", "logging.level"),
    Flag("--log-format", "logging.format"),
    Flag("--logging-format", "logging.format"),
    Flag("--oom-score-adj", "process.oomScoreAdj"),
    Flag("--manage-sysctls", "process.manageSysctls"),
)

_NO_IPTABLES = "iptables is not used"
_NO_IPVS = "IPVS is not used"
_UNTHROTTLED = "requests are few and not throttled"
_UNBUFFERED = "log lines are written at once, to standard error"

_IGNORED_FLAGS: tuple[IgnoredFlag, ...] = (
    IgnoredFlag("--proxy-mode", "there is one mode, nftables maps", usual=("", "nftables")),
    IgnoredFlag(
        "--feature-gates",
        "kube-proxy's gates have no effect here; use --external-ips for AllowServiceExternalIPs",
        usual=("",),
    ),
    IgnoredFlag("--kube-api-content-type", "the agent always uses JSON with the API server"),
    IgnoredFlag("--kube-api-qps", _UNTHROTTLED, usual=("5",)),
    IgnoredFlag("--kube-api-burst", _UNTHROTTLED, usual=("10",)),
    IgnoredFlag("--profiling", "there are no Go profiles of this process", usual=("false",)),
    IgnoredFlag("--show-hidden-metrics-for-version", "no metric is hidden", usual=("",)),
    IgnoredFlag("--healthz-port", "use --healthz-bind-address", usual=("10256",)),
    IgnoredFlag("--metrics-port", "use --metrics-bind-address", usual=("10249",)),
    IgnoredFlag("--iptables-masquerade-bit", "no packet marks are used", usual=("14",)),
    IgnoredFlag(
        "--iptables-localhost-nodeports", "node ports are never answered on loopback addresses", usual=("false",)
    ),
    IgnoredFlag("--iptables-sync-period", _NO_IPTABLES, usual=("30s",)),
    IgnoredFlag("--iptables-min-sync-period", f"{_NO_IPTABLES}; --min-sync-period paces nftables", usual=("1s",)),
    IgnoredFlag("--ipvs-sync-period", _NO_IPVS, usual=("30s",)),
    IgnoredFlag("--ipvs-min-sync-period", _NO_IPVS, usual=("0s",)),
    IgnoredFlag("--ipvs-scheduler", "endpoints are chosen uniformly at random", usual=("", "rr")),
    IgnoredFlag("--ipvs-exclude-cidrs", "IPVS services of other programs are never changed", usual=("",)),
    IgnoredFlag("--ipvs-strict-arp", "load-balancer addresses are not put on an interface", usual=("false",)),
    IgnoredFlag("--ipvs-tcp-timeout", _NO_IPVS, usual=("0s",)),
    IgnoredFlag("--ipvs-tcpfin-timeout", _NO_IPVS, usual=("0s",)),
    IgnoredFlag("--ipvs-udp-timeout", _NO_IPVS, usual=("0s",)),
    IgnoredFlag("--log-flush-frequency", _UNBUFFERED, usual=("5s",)),
    IgnoredFlag("--vmodule", "its patterns name Go source files", usual=("",)),
)

FLAGS: Mapping[str, Flag] = MappingProxyType({flag.name: flag for flag in _FLAGS})
IGNORED_FLAGS: Mapping[str, IgnoredFlag] = MappingProxyType({flag.name: flag for flag in _IGNORED_FLAGS})


def read_flags(given: Mapping[str, str]) -> Layer:
    """Returns the settings of the flags; `given` is the text of each by its name (a key of FLAGS or IGNORED_FLAGS)."""
    layer = Layer()
    for name, text in given.items():
        origin = Origin(f"flag {name}")
        if name in IGNORED_FLAGS:
            ignored = IGNORED_FLAGS[name]
            if text not in ignored.usual:
                layer.ignored.append(IgnoredField(name, ignored.reason, origin))
            continue
        key = KEYS[FLAGS[name].path]
        earlier = layer.settings.get(key.path)
        try:
            value = _level(text) if name == VERBOSITY else parse_text(key.form, text)
        except ValueError as error:
            layer.problems.append(ConfigProblem(origin, key.path, str(error)))
            continue
        if earlier is not None and earlier.value != value:
            layer.problems.append(ConfigProblem(origin, key.path, f"contradicts {earlier.origin}"))
        layer.settings[key.path] = Setting(value, origin, key.path)
    return layer


def _level(text: str) -> str:
    """Returns the log level for ``-v 4``; Go's flag package also accepts ``-v=4``."""
    digits = text.removeprefix("=")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"must be a number from 0 up, not {digits!r}")
    return level_of_verbosity(int(digits))
