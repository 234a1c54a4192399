"""Every option of the agent: its name, unit, default and meaning.

Python names are snake_case, file keys camelCase; the text below an option is its description (`descriptions.py`), and docs/config.md is
generated from this file. An existing `AgentConfig`
(`agent_config.py`) is valid: values are checked one by one by their types, and then against each other.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nodeagent.config import values
from nodeagent.config.durations import NANOSECONDS_PER_SECOND, Duration
from nodeagent.model.runtime_files import AGENT_SOCKET

DEFAULT_SOCKET = Path(AGENT_SOCKET)
API_VERSION = "nodeagent.io/v1alpha1"
KIND = "NodeAgentConfiguration"

_ACRONYMS = {"cidrs": "CIDRs", "ips": "IPs", "api": "API"}


def camel_case(name: str) -> str:
    """Returns the file key of a Python name, with acronyms as in the Kubernetes API (``clusterCIDRs``)."""
    first, *others = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in others)


def option(default: object, unit: str) -> Any:
    """Returns a field. `unit`: what the value counts or how it is written, for the reference, as is the text below it."""
    return Field(default=default, json_schema_extra={"unit": unit})


def _seconds(count: int) -> Duration:
    return Duration(count * NANOSECONDS_PER_SECOND)


class Group(BaseModel):
    """A group of options."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=camel_case,
        populate_by_name=True,
        validate_default=False,
    )


class SourceConfig(Group):
    """Where Services and endpoints come from. Without kubeconfig, master and manifests: the API server and service
    account of the pod in which the agent runs."""

    kubeconfig: values.AnyPath = option(None, "path")
    """Kubeconfig file with the API server's address and credentials."""
    context: values.AnyText = option(None, "name")
    """Context of the kubeconfig file; unset: its current-context."""
    master: values.Urls = option((), "list of URLs")
    """Address of the API server, or of several of one cluster; overrides the one in the kubeconfig file."""
    manifests: values.AnyPath = option(None, "path")
    """Directory of YAML and JSON manifests to read instead of an API server; not together with `kubeconfig`, `context`
    or `master`."""
    endpoints_api: values.EndpointsApi = option(values.EndpointsApi.AUTO, "")
    """The API from which endpoints are read. `auto`: EndpointSlices if the server has them, Endpoints otherwise."""
    snapshot: values.AnyPath = option(None, "path")
    """File in which the last known Services, endpoints, Node and service ranges are kept. If no API server answers at
    the start they are served until one does. Not read with `manifests`."""
    snapshot_max_age: values.Period = option(_seconds(7 * 24 * 3600), "duration")
    """An older `snapshot` is ignored. It is renewed while an API server is followed."""
    resync_period: values.Period = option(_seconds(900), "duration")
    """How often all objects are translated again, changed or not (kube-proxy's configSyncPeriod)."""


class NodeConfig(Group):
    """The identity of this node."""

    name: values.NodeName = Field(json_schema_extra={"unit": "name"})
    """Name of the Node object; surrounding blanks are removed and letters lower-cased. Unset: the host name of the
    operating system."""
    address: values.AddressOverride = option(None, "IP address")
    """Primary address of the node, instead of the Node object's (kube-proxy's bindAddress; nothing is bound to it), and
    the source of the node's own connections to ClusterIPs. `0.0.0.0` and `::` mean unset."""
    families: values.Families = option("auto", "`auto` or a list of `IPv4`, `IPv6`")
    """IP families that are programmed. `auto`: all that the kernel has."""


class TrafficConfig(Group):
    """Which connections are captured, and which get another source address."""

    detect_local_mode: values.DetectLocalMode = option(values.DetectLocalMode.CLUSTER_CIDR, "")
    """How connections from pods are recognised: by source in `clusterCIDRs` (if empty: not at all) or in the Node's
    podCIDRs, by arrival on `bridgeInterface`, or on an interface whose name begins with `interfaceNamePrefix`."""
    cluster_cidrs: values.Cidrs = option((), "list of CIDRs")
    """Addresses of the cluster's pods, for mode `ClusterCIDR`."""
    bridge_interface: values.AnyInterface = option(None, "interface name")
    """Bridge of the pods, for mode `BridgeInterface`."""
    interface_name_prefix: values.AnyInterfacePrefix = option(None, "text")
    """Prefix of the names of the pods' interfaces, for mode `InterfaceNamePrefix`."""
    masquerade_all: values.Switch = option(False, "true or false")
    """Replace the source address of every connection to a ClusterIP, also of those from pods."""
    service_cidrs: values.Cidrs = option((), "list of CIDRs")
    """Ranges of ClusterIPs in addition to those of the cluster's ServiceCIDR objects; packets to addresses in them that
    no service has are dropped. A range that overlaps with `clusterCIDRs`, or contains an address or a gateway of this
    machine, is refused."""
    external_ips: values.Switch = option(True, "true or false")
    """Capture `externalIPs`. With them, a user who may write a Service can take over any address outside the ranges of
    ClusterIPs (CVE-2020-8554)."""
    node_port_addresses: values.NodePortAddresses = option((values.PRIMARY,), "list of CIDRs, `primary`, `all`")
    """Addresses of the node at which node ports answer: those inside the CIDRs, the Node's own (`primary`), or every
    local one (`all`). An empty list is `primary`. Node ports never answer on loopback addresses; the keyword
    `localhost` is refused."""
    protected_ports: values.Ports = option((22, 10249, 10250, 10256), "list of TCP ports")
    """Ports of the node itself, such as those of SSH and the kubelet: at these ports, external IPs and load-balancer
    addresses that belong to the node are not captured, and no node port answers. The API server's port is protected,
    too, unless it is 443. An empty list protects only the connection to the API server."""


class DataplaneConfig(Group):
    """How services are programmed in the kernel, and how often."""

    table_ownership: values.TableOwnership = option(values.TableOwnership.AUTO, "")
    """`owned`: no other process can change or flush the tables while the agent runs; an `nft flush ruleset` skips them
    (kernel 6.9 or later). `plain`: ordinary tables, repaired when another program changes them. `auto`: owned if the
    kernel supports it."""
    interface_name: values.Interface = option("nodeagent0", "interface name")
    """Name of the dummy interface that carries the ClusterIPs."""
    service_interface: values.Switch = option(True, "true or false")
    """Put the ClusterIPs on that interface, so that the node itself can reach them."""
    min_sync_period: values.Pause = option(_seconds(0), "duration")
    """Shortest time from the end of a sync to the next one; changes in between are collected."""
    sync_period: values.Period = option(_seconds(30), "duration")
    """Longest time until a failed sync is retried. `/healthz` fails if a change waits for more than twice this time."""
    full_sync_period: values.Pause = option(_seconds(3600), "duration")
    """How often everything is read back from the kernel and compared; `0s`: never."""
    counters: values.Switch = option(True, "true or false")
    """Count packets and bytes of new connections per frontend."""
    endpoint_counters: values.Switch = option(False, "true or false")
    """Also count how often each endpoint of a frontend is picked. A change of this option replaces the table."""
    flowtable: values.Switch = option(False, "true or false")
    """Forward further packets of established connections to Services from the ingress hook of the interface at which
    they arrive (nftables flowtable; TCP, and UDP that goes on for two seconds): they pass no chain, also none of other
    programs. Not if routes to pods have an encapsulation of their own (`ip route … encap`). Where the kernel has no
    flowtables, this is a problem, and connections are forwarded as without it."""


class ConntrackConfig(Group):
    """Sysctls of connection tracking, written at start if they differ. 0 leaves a value unchanged."""

    max_per_core: values.Count = option(32768, "entries per CPU core")
    """Size of the connection table; 0: the size is not changed, and `min` has no effect."""
    min: values.Count = option(131072, "entries")
    """Smallest size of the connection table, for machines with few cores."""
    tcp_established_timeout: values.KernelTimeout = option(_seconds(86400), "duration")
    """How long an idle established TCP connection is kept."""
    tcp_close_wait_timeout: values.KernelTimeout = option(_seconds(3600), "duration")
    """How long a half-closed TCP connection (CLOSE_WAIT) is kept."""
    tcp_be_liberal: values.Switch = option(False, "true or false")
    """Do not treat TCP packets outside the window as invalid; false leaves the sysctl unchanged."""
    udp_timeout: values.KernelTimeout = option(_seconds(0), "duration")
    """How long a UDP flow without an answer is kept."""
    udp_stream_timeout: values.KernelTimeout = option(_seconds(0), "duration")
    """How long an answered UDP flow is kept."""


class DnsConfig(Group):
    """Cluster DNS on the node, answered from the agent's objects by a separate process (docs/dns.md)."""

    enabled: values.Switch = option(False, "true or false")
    """Answer names of Services. Then headless Services and their slices are followed, too."""
    listen: values.DnsAddresses = option((), "list of IP:port; port 53 if omitted")
    """Where queries are answered, by UDP and TCP: the ClusterIP of the DNS Service, addresses of the node, and others
    in service ranges, 169.254.0.0/16 and fd00::/8, which are put on the service interface. No wildcards: an answer must
    come from the address to which the query was sent."""
    zones: values.DnsZones = option(("cluster.local",), "list of names")
    """The cluster's zones; PTR records use the first one."""
    upstreams: values.DnsAddresses = option((), "list of IP:port; port 53 if omitted")
    """Resolvers for all other names, in this order. If empty: those of /etc/resolv.conf, which is watched."""
    stub_zones: values.StubServers = option((), "list of ZONE=IP:port, or a mapping of zones to lists of IP:port")
    """Resolvers for the names of a zone instead of `upstreams`, in this order; of several zones the longest one is
    used."""
    pods: values.PodNames = option(values.PodNames.INSECURE, "")
    """Names of pods like `10-244-1-5.default.pod.cluster.local`. `insecure`: every address; `verified`: those of
    running pods (then all pods are followed); `disabled`: none."""
    autopath: values.Switch = option(False, "true or false")
    """Answer a pod's first search step with the result of its whole search path: 2 queries instead of 8 for a name
    outside the cluster. Then the node's pods are followed."""
    query_log: values.Count = option(0, "queries")
    """One of this many queries is logged, with its answer's rcode, size and time; 0: none."""
    handover: values.Pause = option(_seconds(0), "a duration; 0s: not at all")
    """For pods, if the next agent is started before this one ends: how long an agent that receives SIGTERM keeps its
    DNS process, until that of the next agent answers. The next agent reads its objects, then waits until the tables are
    free."""
    clients: values.Cidrs = option((), "list of CIDRs")
    """Clients whose queries are answered, in addition to pods and the node. If the addresses of pods are not known
    (traffic.clusterCIDRs), all private addresses are served."""


class ReportingConfig(Group):
    """Where the agent reports its state."""

    healthz_bind_address: values.HealthzAddress = option(
        values.BindAddress(values.ANY_IPV4, 10256), 'IP:port; port 10256 if omitted; `""` = off'
    )
    """Where `/healthz` and `/livez` are served; cloud load balancers probe port 10256."""
    metrics_bind_address: values.MetricsAddress = option(
        values.BindAddress("127.0.0.1", 10249), 'IP:port; port 10249 if omitted; `""` = off'
    )
    """Where `/metrics`, `/proxyMode`, `/configz`, `/statusz`, `/readyz` and the status page are served, to every client
    that can connect."""
    metrics_host_names: values.HostNames = option((), "list of names")
    """Names by which clients may call the server at `metricsBindAddress`, in addition to its addresses, `localhost`,
    the names of the node and its host, and these with the domains of /etc/resolv.conf. Other names get 403, because a
    page in a browser could use DNS to make its own name lead to this server."""
    metrics_services: values.Count = option(1000, "service ports")
    """How many service ports have their own series in `/metrics`; the connections of the others are one sum."""
    metrics_endpoints: values.Count = option(1000, "endpoints of service ports")
    """How many endpoints have their own series in `/metrics`, with `dataplane.endpointCounters`; the others are one
    sum."""
    bind_address_hard_fail: values.Switch = option(False, "true or false")
    """Exit if `healthzBindAddress` or `metricsBindAddress` cannot be bound; otherwise binding is retried."""
    socket: values.SocketPath = option(DEFAULT_SOCKET, 'path; `""` = off')
    """Unix socket, mode 0660, at which commands like `explain` ask this agent. If an agent of another network namespace
    uses it, this agent listens at a path beside it."""
    socket_group: values.AnyText = option(None, "name or number")
    """Group whose members may use the socket; unset: the group of the agent's process."""
    events: values.Switch = option(True, "true or false")
    """Publish Kubernetes events (start, failures) on Node and Service."""


class LoggingConfig(Group):
    """What is logged, and in which format."""

    level: values.AnyLogLevel = option(values.LogLevel.INFO, "")
    """Least severe log line that is written; upper or lower case."""
    format: values.LogFormat = option(values.LogFormat.TEXT, "")
    """Log lines as text or as one JSON object per line."""


class ProcessConfig(Group):
    """The process and its host."""

    oom_score_adj: values.OomScore = option(-999, "-1000 to 1000")
    """How willingly the kernel kills the agent when memory runs out; -1000: never."""
    manage_sysctls: values.Switch = option(True, "true or false")
    """Set the sysctls that the agent needs and those of `conntrack`; false: only check and report."""


class Options(Group):
    """All options. Only `node.name` has no default: the loader takes it from the host name.

    Raises pydantic.ValidationError for values that are wrong by themselves.
    """

    source: SourceConfig = SourceConfig()
    node: NodeConfig
    traffic: TrafficConfig = TrafficConfig()
    dataplane: DataplaneConfig = DataplaneConfig()
    conntrack: ConntrackConfig = ConntrackConfig()
    dns: DnsConfig = DnsConfig()
    reporting: ReportingConfig = ReportingConfig()
    logging: LoggingConfig = LoggingConfig()
    process: ProcessConfig = ProcessConfig()
