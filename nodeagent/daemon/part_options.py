"""The configuration in the form that each part takes (pure, except for reading the kubeconfig and resolv.conf)."""

import grp
import hashlib
import json
import socket
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.keys import KEYS, plain_option
from nodeagent.config.options import API_VERSION
from nodeagent.config.values import DetectLocalMode, PodNames, TableOwnership
from nodeagent.model.addresses import Family, family_of, parse_network
from nodeagent.model.in_use import InUse, Network, describe_overlap
from nodeagent.model.objects import Node
from nodeagent.model.protected import SocketAddress
from nodeagent.names.feed.feed_messages import Settings
from nodeagent.names.feed.spawn import PROGRAM
from nodeagent.names.upstream.node_resolvers import RESOLV_CONF
from nodeagent.names.upstream.resolv_conf import parse_resolv_conf
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.nearby_addresses import OutboundEndpoint
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.sysctl import ConntrackOptions
from nodeagent.proxy.source.client.api_errors import KubeconfigError
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, in_cluster, load_kubeconfig
from nodeagent.proxy.source.client.proxy import DEFAULT_PORTS, environment_proxy, without_password
from nodeagent.proxy.source.client.server_choice import Server
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.saved.state_origin import StateOrigin
from nodeagent.proxy.translate.node_state import DetectLocal, TranslationOptions
from nodeagent.runtime.bounded_file import read_whole

_UNIQUE_LOCAL = ip_network("fd00::/8")
"""RFC 4193."""


def program_options(config: AgentConfig, family: Family) -> ProgramOptions:
    """Returns the options of a family's constant rules.
    A family without a cluster CIDR cannot distinguish pods, which is not the same as having no pods (docs/semantics.md
    46, 50)."""
    traffic = config.traffic
    interface = pod_range = ""
    match traffic.detect_local_mode:
        case DetectLocalMode.CLUSTER_CIDR:
            pods = next((cidr for cidr in traffic.cluster_cidrs if family_of(cidr) is family), None)
            detection = PodDetection.NONE if pods is None else PodDetection.CIDR
            network = None if pods is None else parse_network(pods)
            pod_range = str(network) if network is not None and network.prefixlen else ""
        case DetectLocalMode.NODE_CIDR:
            detection = PodDetection.CIDR
        case DetectLocalMode.BRIDGE_INTERFACE:
            detection, interface = PodDetection.INTERFACE, str(traffic.bridge_interface)
        case DetectLocalMode.INTERFACE_NAME_PREFIX:
            detection, interface = PodDetection.INTERFACE_PREFIX, str(traffic.interface_name_prefix)
    counters = config.dataplane.counters
    return ProgramOptions(
        detection,
        interface,
        traffic.masquerade_all,
        counters,
        names=config.dns.enabled,
        endpoint_counters=config.dataplane.endpoint_counters,
        pod_range=pod_range,
        flowtable=config.dataplane.flowtable,
    )


def wanted_families(config: AgentConfig) -> tuple[Family, ...] | None:
    """Returns the families to program; None: all that the machine has."""
    families = config.node.families
    return None if families == "auto" else families


def wanted_ownership(config: AgentConfig) -> Ownership | None:
    """Returns the wanted ownership of the tables; None: owned if the kernel supports it."""
    wanted = config.dataplane.table_ownership
    return None if wanted is TableOwnership.AUTO else Ownership(wanted.value)


def translation_options(config: AgentConfig, families: tuple[Family, ...]) -> TranslationOptions:
    """Returns the options of the translation."""
    traffic = config.traffic
    return TranslationOptions(
        node_name=config.node.name,
        families=families,
        bind_address=str(config.node.address or ""),
        detect_local=DetectLocal(traffic.detect_local_mode.value),
        cluster_cidrs=tuple(str(cidr) for cidr in traffic.cluster_cidrs),
        external_ips_enabled=traffic.external_ips,
        node_port_addresses=tuple(str(address) for address in traffic.node_port_addresses),
        protected_ports=traffic.protected_ports,
    )


def dns_settings(config: AgentConfig, families: tuple[Family, ...]) -> Settings | None:
    """Returns the settings for a DNS process; None if names are not answered. Listening addresses of a family that this
    machine lacks are left out."""
    dns = config.dns
    if not dns.enabled:
        return None
    return Settings(
        version=PROGRAM,
        zones=dns.zones,
        pods=dns.pods.value,
        autopath=dns.autopath,
        log_every=dns.query_log,
        upstreams=tuple(str(upstream) for upstream in dns.upstreams),
        stub_zones=tuple((stub.zone, str(stub.server)) for stub in dns.stub_zones),
        listening=tuple((place.host, place.port) for place in dns.listen if family_of(place.host) in families),
    )


def followed_pods(config: AgentConfig) -> Literal["all", "node's", "none"]:
    """Returns which pods cluster DNS needs to know."""
    dns = config.dns
    if dns.enabled and dns.pods is PodNames.VERIFIED:
        return "all"
    return "node's" if dns.enabled and dns.autopath else "none"


def pod_ranges(config: AgentConfig, node: Node | None) -> tuple[str, ...]:
    """Returns the pod ranges by the configuration; empty if it does not name any."""
    traffic = config.traffic
    if traffic.detect_local_mode is DetectLocalMode.CLUSTER_CIDR:
        return tuple(str(cidr) for cidr in traffic.cluster_cidrs)
    if traffic.detect_local_mode is not DetectLocalMode.NODE_CIDR or node is None:
        return ()
    cidrs = node.spec.pod_cidrs or ((node.spec.pod_cidr,) if node.spec.pod_cidr else ())
    return tuple(str(network) for cidr in cidrs if (network := parse_network(cidr)) is not None)


def wanted_interface(config: AgentConfig) -> str | None:
    """Returns the name of the service interface; None: there must not be one."""
    return config.dataplane.interface_name if config.dataplane.service_interface else None


def dns_places(config: AgentConfig) -> frozenset[SocketAddress]:
    """Returns the addresses at which names are answered; empty without cluster DNS."""
    return frozenset((place.host, place.port) for place in config.dns.listen if config.dns.enabled)


def names_at(config: AgentConfig) -> tuple[str, ...]:
    """The addresses at which this node answers names itself."""
    return tuple(place.host for place in config.dns.listen) if config.dns.enabled else ()


def dns_addresses(config: AgentConfig, service_cidrs: Iterable[str], in_use: frozenset[InUse]) -> frozenset[str]:
    """Returns the DNS addresses that the service interface carries: those in a service range, link-local IPv4 ones
    (169.254.20.10), and unique local IPv6 ones that are not in use nearby. Any other one must be the node's."""
    listening = config.dns.listen if config.dns.enabled else ()
    ranges = [ip_network(cidr) for cidr in service_cidrs if parse_network(cidr)]
    return frozenset(place.host for place in listening if _is_for_names(ip_address(place.host), ranges, in_use))


def _is_for_names(address: IPv4Address | IPv6Address, ranges: Iterable[Network], in_use: frozenset[InUse]) -> bool:
    if any(address in service_range for service_range in ranges):
        return True
    if isinstance(address, IPv4Address):
        return address.is_link_local
    return address in _UNIQUE_LOCAL and not describe_overlap(ip_network(address), in_use)


def group_number(name: str | None) -> int | None:
    """Returns the number of a group, from its name or number; None for None, or if this machine does not know it."""
    if name is None or (name.isascii() and name.isdigit()):
        return None if name is None else int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def conntrack_options(config: AgentConfig) -> ConntrackOptions:
    """Returns the sizes and timeouts of connection tracking."""
    conntrack = config.conntrack
    return ConntrackOptions(
        max_per_core=conntrack.max_per_core,
        min=conntrack.min,
        tcp_established_seconds=int(conntrack.tcp_established_timeout.seconds),
        tcp_close_wait_seconds=int(conntrack.tcp_close_wait_timeout.seconds),
        tcp_be_liberal=conntrack.tcp_be_liberal,
        udp_seconds=int(conntrack.udp_timeout.seconds),
        udp_stream_seconds=int(conntrack.udp_stream_timeout.seconds),
    )


def cluster_access(config: AgentConfig, environment: Mapping[str, str]) -> ClusterAccess:
    """Returns how to reach the API server. The kubeconfig's proxy wins over the environment's. Raises KubeconfigError."""
    source = config.source
    if source.kubeconfig is not None:
        access = load_kubeconfig(source.kubeconfig, source.context)
        if source.master:
            access = replace(access, server=source.master[0])
    elif source.master:
        access = ClusterAccess(source.master[0], TlsTrust(), FixedCredential())
    elif environment.get("KUBERNETES_SERVICE_HOST"):
        access = in_cluster(environment)
    else:
        raise KubeconfigError(
            "no source: give --kubeconfig FILE or --manifests DIRECTORY (outside a pod there is no default)"
        )
    servers = [
        Server(url, access.proxy or environment_proxy(url, environment)) for url in (access.server, *source.master[1:])
    ]
    return replace(access, proxy=servers[0].proxy, others=tuple(servers[1:]))


def saved_state_origin(config: AgentConfig, access: ClusterAccess) -> StateOrigin:
    """Returns the origin that a snapshot must have to be used. Raises KubeconfigError if the authority's file cannot be
    read."""
    authority = access.trust.authority
    if isinstance(authority, Path):
        try:
            authority = read_whole(authority)
        except OSError as error:
            raise KubeconfigError(f"certificate authority file {error.filename}: {error.strerror or error}") from error
    digest = hashlib.sha256(authority or b"")
    for url in sorted(server.url for server in access.servers):
        digest.update(b"\n" + url.encode())
    return StateOrigin(digest.hexdigest(), config.node.name, for_names=config.dns.enabled)


def named_hosts(config: AgentConfig, access: ClusterAccess | None) -> tuple[str, ...]:
    """Returns the hosts that the configuration names as API servers; empty inside a pod, which uses a ClusterIP."""
    named = access is not None and (config.source.kubeconfig or config.source.master)
    hosts = [urlsplit(server.url).hostname for server in access.servers] if access is not None and named else []
    return tuple(dict.fromkeys(filter(None, hosts)))


def reached_by_own_service(access: ClusterAccess | None, environment: Mapping[str, str]) -> str:
    """Returns a warning if the API server's address is the ClusterIP of its own Service; empty for any other address."""
    own = environment.get("KUBERNETES_SERVICE_HOST")
    if access is None or not own or own not in (urlsplit(server.url).hostname for server in access.servers):
        return ""
    return (
        f"{own} is the ClusterIP of the Service kubernetes and leads nowhere until an agent has programmed this node:  "
        "name the address of the API server itself in the kubeconfig"
    )


def ways(access: ClusterAccess | None) -> tuple[OutboundEndpoint, ...]:
    """Returns the endpoints to which the agent connects: each API server, and its proxy."""
    found = []
    for server in access.servers if access is not None else ():
        for url, is_server in ((server.url, True), (server.proxy, False)):
            parts = urlsplit(url or "")
            if parts.hostname:
                found.append(
                    OutboundEndpoint(parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme, 443), is_server)
                )
    return tuple(dict.fromkeys(found))


def describe_way(config: AgentConfig, environment: Mapping[str, str]) -> str | None:
    """Returns how the API server is reached through proxies; None if directly, or if that is unknown."""
    if config.source.manifests is not None:
        return None
    try:
        access = cluster_access(config, environment)
    except KubeconfigError:
        return None
    through = [
        f"the API server {server.url} is reached through the proxy {without_password(server.proxy)}"
        for server in access.servers
        if server.proxy is not None
    ]
    return ", ".join(through) or None


def describe_source(config: AgentConfig) -> str:
    """Returns where the objects come from, for the log."""
    source = config.source
    if source.manifests is not None:
        return f"manifests {source.manifests}"
    return f"kubeconfig {source.kubeconfig}" if source.kubeconfig else ",".join(source.master) or "in-cluster"


def metrics_host_names(config: AgentConfig) -> tuple[str, ...]:
    """Returns the names by which clients may call the metrics server, beside addresses and localhost."""
    own = (config.node.name, socket.gethostname())
    try:
        domains = parse_resolv_conf(RESOLV_CONF.read_text(errors="replace")).search
    except OSError:
        domains = ()
    return (*own, *(f"{name}.{domain}" for name in own for domain in domains), *config.reporting.metrics_host_names)


def configz(config: AgentConfig) -> bytes:
    """Returns the configuration as one JSON object under the name of its API, like a configuration file."""
    groups: dict[str, dict[str, object]] = {}
    for key in KEYS.values():
        groups.setdefault(key.group, {})[key.name] = plain_option(key, key.value_in(config))
    return json.dumps({API_VERSION: groups}).encode()
