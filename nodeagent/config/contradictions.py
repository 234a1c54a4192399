"""Finds values that are valid alone but not together, and valid values that have no effect."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nodeagent.config.options import Options, TrafficConfig
from nodeagent.config.values import ANY_IPV4, DetectLocalMode, PodNames
from nodeagent.model.addresses import family_of, parse_network
from nodeagent.model.in_use import InUse, describe_overlap, host


class Contradiction(NamedTuple):
    """`key` contradicts the keys in `others` (both as paths: ``traffic.clusterCIDRs``)."""

    key: str
    others: tuple[str, ...]
    reason: str


def contradictions(config: Options) -> Iterator[Contradiction]:
    """Yields all contradictions in `config`."""
    yield from _source(config)
    yield from _detection(config.traffic)
    yield from _families(config)
    yield from _service_ranges(config)
    if config.dns.enabled and not config.dns.listen:
        yield Contradiction("dns.enabled", ("dns.listen",), "needs dns.listen, the addresses to answer at")
    yield from _followed_pods(config)
    dataplane = config.dataplane
    if dataplane.min_sync_period > dataplane.sync_period:
        yield Contradiction(
            "dataplane.minSyncPeriod",
            ("dataplane.syncPeriod",),
            f"{dataplane.min_sync_period} must not be greater than dataplane.syncPeriod ({dataplane.sync_period})",
        )
    healthz, metrics = config.reporting.healthz_bind_address, config.reporting.metrics_bind_address
    if healthz and metrics and healthz.port == metrics.port and _share_an_address(healthz.host, metrics.host):
        yield Contradiction(
            "reporting.metricsBindAddress",
            ("reporting.healthzBindAddress",),
            f"healthz at {healthz} and metrics at {metrics} cannot share a port",
        )


def idle_options(config: Options) -> Iterator[tuple[str, str]]:
    """Yields keys whose value has no effect, with the reason: allowed in `config`, but probably a mistake."""
    traffic, mode = config.traffic, config.traffic.detect_local_mode
    uses: tuple[tuple[str, object, DetectLocalMode], ...] = (
        ("traffic.clusterCIDRs", traffic.cluster_cidrs, DetectLocalMode.CLUSTER_CIDR),
        ("traffic.bridgeInterface", traffic.bridge_interface, DetectLocalMode.BRIDGE_INTERFACE),
        ("traffic.interfaceNamePrefix", traffic.interface_name_prefix, DetectLocalMode.INTERFACE_NAME_PREFIX),
    )
    for key, value, needed in uses:
        if value and mode is not needed:
            yield key, f"has no effect with traffic.detectLocalMode {mode}"
    for text in traffic.node_port_addresses:
        network = parse_network(text)
        if network is not None and network.is_loopback:
            yield "traffic.nodePortAddresses", f"{text}: node ports are never answered on loopback addresses"
    for zone in dict.fromkeys(stub.zone for stub in config.dns.stub_zones):
        if any(f".{zone}".endswith(f".{own}") for own in config.dns.zones):
            yield "dns.stubZones", f"{zone}: names of dns.zones are answered here and never asked elsewhere"


def _followed_pods(config: Options) -> Iterator[Contradiction]:
    """Manifests contain Services; only an API server knows the running pods."""
    dns = config.dns
    if dns.enabled and config.source.manifests is not None:
        for key, value in (("dns.pods", dns.pods is PodNames.VERIFIED), ("dns.autopath", dns.autopath)):
            if value:
                word = "verified " if key == "dns.pods" else ""
                reason = f"{word}needs the pods of an API server, and source.manifests has none"
                yield Contradiction(key, ("source.manifests",), reason)


def _source(config: Options) -> Iterator[Contradiction]:
    source = config.source
    if source.manifests is not None:
        for key, value in (
            ("source.kubeconfig", source.kubeconfig),
            ("source.context", source.context),
            ("source.master", source.master or None),
        ):
            if value is not None:
                reason = f"cannot be combined with {key}: objects come either from a directory or from an API server"
                yield Contradiction("source.manifests", (key,), reason)
    elif source.context is not None and source.kubeconfig is None:
        yield Contradiction("source.context", ("source.kubeconfig",), "needs source.kubeconfig")


def _detection(traffic: TrafficConfig) -> Iterator[Contradiction]:
    needs: Mapping[DetectLocalMode, tuple[str, object]] = {
        DetectLocalMode.BRIDGE_INTERFACE: ("traffic.bridgeInterface", traffic.bridge_interface),
        DetectLocalMode.INTERFACE_NAME_PREFIX: ("traffic.interfaceNamePrefix", traffic.interface_name_prefix),
    }
    key, value = needs.get(traffic.detect_local_mode, ("", True))
    if not value:
        yield Contradiction("traffic.detectLocalMode", (key,), f"{traffic.detect_local_mode} needs {key}")


def _families(config: Options) -> Iterator[Contradiction]:
    families, address = config.node.families, config.node.address
    if families == "auto":
        return
    named = ", ".join(family.value for family in families)
    if address is not None and family_of(address) not in families:
        yield Contradiction(
            "node.address", ("node.families",), f"{address}: its family is not in node.families ({named})"
        )
    cidrs = config.traffic.cluster_cidrs
    used = config.traffic.detect_local_mode is DetectLocalMode.CLUSTER_CIDR
    if used and cidrs and not any(family_of(cidr) in families for cidr in cidrs):
        reason = f"{', '.join(cidrs)}: no family of these is in node.families ({named})"
        yield Contradiction("traffic.clusterCIDRs", ("node.families", "traffic.detectLocalMode"), reason)


def _service_ranges(config: Options) -> Iterator[Contradiction]:
    """Addresses in a service range that are no ClusterIP are dropped, so a range must contain no other address in use."""
    traffic, address = config.traffic, config.node.address
    pods = {InUse(cidr, "pods: traffic.clusterCIDRs") for cidr in traffic.cluster_cidrs}
    own = {host(address, "this node: node.address")} if address is not None else set()
    for cidr in traffic.service_cidrs:
        network = parse_network(cidr)
        if network is not None and (what := describe_overlap(network, pods | own)):
            others = ("traffic.clusterCIDRs",) if "clusterCIDRs" in what else ()
            reason = f"{cidr} overlaps with {what}, which it would cut off"
            yield Contradiction("traffic.serviceCIDRs", others, reason)


def _share_an_address(one: str, other: str) -> bool:
    """Returns whether listening on both at one port fails. ``::`` also takes IPv4 (Linux, net.ipv6.bindv6only = 0)."""
    if one == other or "::" in {one, other}:
        return True
    return ANY_IPV4 in {one, other} and family_of(one) is family_of(other)
