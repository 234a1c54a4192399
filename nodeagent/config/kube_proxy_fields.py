"""Every field of kube-proxy's KubeProxyConfiguration, and its meaning here.

Names, types and defaults: k8s.io/kube-proxy/config/v1alpha1 and k8s.io/component-base/logs/api/v1, Kubernetes 1.36. A
zero value (``""``, ``0``, ``0s``, ``false``, an empty list) means "not set" there, except in pointer fields, in which
only null does. kubeadm writes every field with its zero value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

KUBE_PROXY_API_VERSION = "kubeproxy.config.k8s.io/v1alpha1"
KUBE_PROXY_KIND = "KubeProxyConfiguration"


class GoType(Enum):
    """The type of a field, as used in error texts: "must be …"."""

    STRING = "a string"
    BOOL = "true or false"
    INT = "a whole number"
    FLOAT = "a number"
    DURATION = "a duration like 30s or 1h30m"
    DURATION_OR_NANOSECONDS = "a duration like 5s or a whole number of nanoseconds"
    QUANTITY = "a quantity like 64Ki"
    STRINGS = "a list of strings"
    BOOLS = "a mapping from names to true or false"
    OBJECTS = "a list of mappings"


@dataclass(frozen=True, slots=True)
class KubeProxyField:
    """One field. Either it `becomes` an option of ours, or it has no effect, for `reason`.

    `usual`: values of a field without effect for which no note is printed, in addition to the zero value, because they
    are the default or what happens anyway.
    """

    path: str
    type: GoType
    becomes: str = ""
    reason: str = ""
    pointer: bool = False
    usual: tuple[object, ...] = ()


_NO_MARKS = "no packet marks are used"
_NO_IPTABLES = "iptables is not used; changes are programmed at once, dataplane.minSyncPeriod would delay them"
_NO_IPVS = "IPVS is not used"
_JSON = "the agent always uses JSON with the API server"
_UNTHROTTLED = "the agent makes a handful of long requests, which are not throttled"
_UNBUFFERED = "log lines are written at once, to standard error"
_WINDOWS = "it is for Windows"

_FIELDS: tuple[KubeProxyField, ...] = (
    KubeProxyField("featureGates", GoType.BOOLS, reason="only AllowServiceExternalIPs has an effect here"),
    KubeProxyField("clientConnection.kubeconfig", GoType.STRING, becomes="source.kubeconfig"),
    KubeProxyField("clientConnection.acceptContentTypes", GoType.STRING, reason=_JSON),
    KubeProxyField(
        "clientConnection.contentType",
        GoType.STRING,
        reason=_JSON,
        usual=("application/vnd.kubernetes.protobuf", "application/json"),
    ),
    KubeProxyField("clientConnection.qps", GoType.FLOAT, reason=_UNTHROTTLED, usual=(5,)),
    KubeProxyField("clientConnection.burst", GoType.INT, reason=_UNTHROTTLED, usual=(10,)),
    KubeProxyField("logging.format", GoType.STRING, becomes="logging.format"),
    KubeProxyField(
        "logging.flushFrequency", GoType.DURATION_OR_NANOSECONDS, reason=_UNBUFFERED, usual=("5s", 5 * 10**9)
    ),
    KubeProxyField("logging.verbosity", GoType.INT, becomes="logging.level"),
    KubeProxyField("logging.vmodule", GoType.OBJECTS, reason="its patterns name Go source files"),
    KubeProxyField("logging.options.text.splitStream", GoType.BOOL, reason=_UNBUFFERED),
    KubeProxyField("logging.options.text.infoBufferSize", GoType.QUANTITY, reason=_UNBUFFERED, usual=("0",)),
    KubeProxyField("logging.options.json.splitStream", GoType.BOOL, reason=_UNBUFFERED),
    KubeProxyField("logging.options.json.infoBufferSize", GoType.QUANTITY, reason=_UNBUFFERED, usual=("0",)),
    KubeProxyField("hostnameOverride", GoType.STRING, becomes="node.name"),
    KubeProxyField("bindAddress", GoType.STRING, becomes="node.address"),
    KubeProxyField("healthzBindAddress", GoType.STRING, becomes="reporting.healthzBindAddress"),
    KubeProxyField("metricsBindAddress", GoType.STRING, becomes="reporting.metricsBindAddress"),
    KubeProxyField("bindAddressHardFail", GoType.BOOL, becomes="reporting.bindAddressHardFail"),
    KubeProxyField("enableProfiling", GoType.BOOL, reason="there are no Go profiles of this process"),
    KubeProxyField("showHiddenMetricsForVersion", GoType.STRING, reason="no metric is hidden"),
    KubeProxyField(
        "mode",
        GoType.STRING,
        reason="there is one mode, nftables maps",
        usual=("nftables",),
    ),
    KubeProxyField("iptables.masqueradeAll", GoType.BOOL, becomes="traffic.masqueradeAll"),
    KubeProxyField("iptables.masqueradeBit", GoType.INT, reason=_NO_MARKS, pointer=True, usual=(14,)),
    KubeProxyField(
        "iptables.localhostNodePorts",
        GoType.BOOL,
        reason="node ports are never answered on loopback addresses",
        pointer=True,
        usual=(True, False),
    ),
    KubeProxyField(
        "iptables.snatNodeInternalIP",
        GoType.BOOL,
        pointer=True,
        usual=(False,),
        reason="the kernel chooses the source by route when it masquerades",
    ),
    KubeProxyField("iptables.syncPeriod", GoType.DURATION, reason=_NO_IPTABLES, usual=("30s",)),
    KubeProxyField("iptables.minSyncPeriod", GoType.DURATION, reason=_NO_IPTABLES, usual=("1s",)),
    KubeProxyField("ipvs.syncPeriod", GoType.DURATION, reason=_NO_IPVS, usual=("30s",)),
    KubeProxyField("ipvs.minSyncPeriod", GoType.DURATION, reason=_NO_IPVS),
    KubeProxyField("ipvs.scheduler", GoType.STRING, reason="endpoints are chosen uniformly at random", usual=("rr",)),
    KubeProxyField("ipvs.excludeCIDRs", GoType.STRINGS, reason="IPVS services of other programs are never changed"),
    KubeProxyField(
        "ipvs.strictARP",
        GoType.BOOL,
        reason="load-balancer and external addresses are not put on an interface, so no ARP request for them is answered",
    ),
    KubeProxyField("ipvs.tcpTimeout", GoType.DURATION, reason=_NO_IPVS),
    KubeProxyField("ipvs.tcpFinTimeout", GoType.DURATION, reason=_NO_IPVS),
    KubeProxyField("ipvs.udpTimeout", GoType.DURATION, reason=_NO_IPVS),
    KubeProxyField("nftables.masqueradeAll", GoType.BOOL, becomes="traffic.masqueradeAll"),
    KubeProxyField("nftables.masqueradeBit", GoType.INT, reason=_NO_MARKS, pointer=True, usual=(14,)),
    KubeProxyField("nftables.syncPeriod", GoType.DURATION, becomes="dataplane.syncPeriod"),
    KubeProxyField("nftables.minSyncPeriod", GoType.DURATION, becomes="dataplane.minSyncPeriod"),
    KubeProxyField("winkernel.networkName", GoType.STRING, reason=_WINDOWS),
    KubeProxyField("winkernel.sourceVip", GoType.STRING, reason=_WINDOWS),
    KubeProxyField("winkernel.enableDSR", GoType.BOOL, reason=_WINDOWS),
    KubeProxyField("winkernel.rootHnsEndpointName", GoType.STRING, reason=_WINDOWS),
    KubeProxyField("winkernel.forwardHealthCheckVip", GoType.BOOL, reason=_WINDOWS),
    KubeProxyField("detectLocalMode", GoType.STRING, becomes="traffic.detectLocalMode"),
    KubeProxyField("detectLocal.bridgeInterface", GoType.STRING, becomes="traffic.bridgeInterface"),
    KubeProxyField("detectLocal.interfaceNamePrefix", GoType.STRING, becomes="traffic.interfaceNamePrefix"),
    KubeProxyField("clusterCIDR", GoType.STRING, becomes="traffic.clusterCIDRs"),
    KubeProxyField("nodePortAddresses", GoType.STRINGS, becomes="traffic.nodePortAddresses"),
    KubeProxyField("oomScoreAdj", GoType.INT, becomes="process.oomScoreAdj", pointer=True),
    KubeProxyField("conntrack.maxPerCore", GoType.INT, becomes="conntrack.maxPerCore", pointer=True),
    KubeProxyField("conntrack.min", GoType.INT, becomes="conntrack.min", pointer=True),
    KubeProxyField(
        "conntrack.tcpEstablishedTimeout", GoType.DURATION, becomes="conntrack.tcpEstablishedTimeout", pointer=True
    ),
    KubeProxyField(
        "conntrack.tcpCloseWaitTimeout", GoType.DURATION, becomes="conntrack.tcpCloseWaitTimeout", pointer=True
    ),
    KubeProxyField("conntrack.tcpBeLiberal", GoType.BOOL, becomes="conntrack.tcpBeLiberal"),
    KubeProxyField("conntrack.udpTimeout", GoType.DURATION, becomes="conntrack.udpTimeout"),
    KubeProxyField("conntrack.udpStreamTimeout", GoType.DURATION, becomes="conntrack.udpStreamTimeout"),
    KubeProxyField("configSyncPeriod", GoType.DURATION, becomes="source.resyncPeriod"),
    KubeProxyField("portRange", GoType.STRING, reason="it was for the userspace mode, which kube-proxy no longer has"),
    KubeProxyField("windowsRunAsService", GoType.BOOL, reason=_WINDOWS),
    KubeProxyField("conntrack.max", GoType.INT, reason="kube-proxy removed it in favour of maxPerCore and min"),
    KubeProxyField("resourceContainer", GoType.STRING, reason="kube-proxy removed it", usual=("/kube-proxy",)),
    KubeProxyField("udpIdleTimeout", GoType.DURATION, reason="kube-proxy removed it", usual=("250ms",)),
)

KUBE_PROXY_FIELDS: Mapping[str, KubeProxyField] = MappingProxyType({field.path: field for field in _FIELDS})
