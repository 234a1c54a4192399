"""Rules that need only the objects: addresses that cannot be endpoints, names that lead nowhere (pure)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from ipaddress import ip_network

from nodeagent.diagnosis.explain.endpoint_reasons import Account
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.diagnosis.explain.verdict import Finding, Severity
from nodeagent.model.addresses import LAST_PORT, endpoint_text, family_of, pack_address, parse_address
from nodeagent.model.objects import LABEL_PROXY_NAME, EndpointSlice, Service, ServicePort
from nodeagent.model.text import none_of_its
from nodeagent.proxy.translate.service_ports import PROTOCOLS, is_port_number

_SHOWN = 3
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.IGNORECASE)
"""What a name of DNS may be (RFC 1123, and underscores, as Kubernetes takes them)."""


@cache
def _bounds(cidr: str) -> tuple[bytes, bytes]:
    """Returns the first and the last address. Cached: the same few ranges are asked for of every Service."""
    network = ip_network(cidr)
    return network.network_address.packed, network.broadcast_address.packed


def cluster_ips_among(addresses: Sequence[str], facts: ServiceFacts) -> list[str]:
    """Returns those of these addresses that are ClusterIPs, or in their ranges."""
    packed = [(pack_address(one), one) for one in addresses]
    among = {one for cidr in facts.service_ranges for one in _within(cidr, packed)}
    among.update(facts.taken.cluster_ips.intersection(addresses))
    return [one for one in addresses if one in among] if among else []


def _within(cidr: str, packed: Iterable[tuple[bytes, str]]) -> list[str]:
    """Returns those of the addresses that are in the range."""
    low, high = _bounds(cidr)
    return [one for address, one in packed if low <= address <= high and len(address) == len(low)]


def chained(facts: ServiceFacts, accounts: Sequence[Account]) -> Iterator[Finding]:
    """Endpoints that are addresses of Services: a connection is translated only once."""
    used = list(dict.fromkeys((one.address, one.port) for one in accounts if one.used))
    taken = facts.taken
    ips = cluster_ips_among([one for one, _ in used], facts)
    here = [endpoint_text(address, port) for address, port in used if port and (address, port) in taken.here]
    outside = [endpoint_text(address, port) for address, port in used if port and (address, port) in taken.outside]
    for found, what, certain in (
        (list(dict.fromkeys(ips)), "a ClusterIP, or in their range", True),
        (here, "a node port of this node", True),
        (outside, "an external or load-balancer address of a Service", False),
    ):
        if not found:
            continue
        shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
        every = len(found) == len(used)
        yield Finding(
            Severity.BROKEN if every and certain else Severity.IMPAIRED,
            f"{len(found)} of {len(used)} endpoints cannot be reached"
            + ("" if certain else " by way of this node's rules"),
            f"{shown} is {what}, and a connection is translated only once",
            "write the addresses of the pods into the slices, or make it an ExternalName of the other Service",
        )


def unusable_ports(facts: ServiceFacts) -> Iterator[Finding]:
    """Yields ports that no packet can have, and the lack of any port. The API server rejects such Services; manifests may
    have them."""
    if not facts.service.spec.ports:
        yield Finding(
            Severity.BROKEN, "it serves nothing", "the Service has no ports", "write its ports into the object"
        )
    for port in facts.ports:
        if is_usable(port):
            continue
        yield Finding(
            Severity.BROKEN,
            f"port {port.name or port.port} is not served",
            f"{port.port}/{port.protocol or 'TCP'} is not a port: 1 to {LAST_PORT}, of {', '.join(sorted(PROTOCOLS))}",
            "correct that in the object",
        )


def is_usable(port: ServicePort) -> bool:
    """Whether packets can have that port and protocol."""
    return is_port_number(port.port) and (port.protocol or "TCP") in PROTOCOLS


def misplaced_cluster_ips(facts: ServiceFacts) -> Iterator[Finding]:
    """Yields ClusterIPs that are addresses of this node, or that a pod may get."""
    for one in () if facts.state is None else facts.state.cluster_ips:
        packed = [(pack_address(one), one)]
        within = next((cidr for cidr in facts.pod_ranges if _within(cidr, packed)), None)
        what, why = "", ""
        if one in facts.context.node_addresses:
            what, why = "an address of this node", "the node's own ports there are covered by it"
        elif within is not None:
            what, why = f"in the range of pods {within}", "a pod that is given that address cannot be reached"
        if what:
            do = "give the Service an address of the service range, and keep the ranges apart"
            yield Finding(Severity.IMPAIRED, f"its ClusterIP {one} is {what}", why, do)


def of_other_proxy(service: Service) -> Finding:
    """Returns the finding for a Service that a label assigns to another proxy."""
    name = (service.metadata.labels or {}).get(LABEL_PROXY_NAME, "")
    return Finding(
        Severity.BROKEN,
        "this agent does not serve it",
        f"its label {LABEL_PROXY_NAME}: {name} leaves it to another proxy",
        "take the label away, or see that that proxy runs on this node",
    )


def unlabelled(facts: ServiceFacts) -> str:
    """Returns the slice without a service-name label whose own name begins with this Service's, or an empty text."""
    begin = f"EndpointSlice {facts.key}"
    named = (one.detail.partition(":")[0] for one in facts.problems if one.reason == "NoServiceName")
    return next((one.removeprefix("EndpointSlice ") for one in named if one.startswith(begin)), "")


def left_to_balancer(service: Service) -> list[str]:
    """Returns the addresses that the load balancer answers itself (ipMode Proxy)."""
    status = service.status
    ingress = status.load_balancer.ingress if status is not None and status.load_balancer is not None else None
    return [one.ip for one in ingress or () if one.ip and one.ip_mode == "Proxy"]


def node_ports(facts: ServiceFacts) -> Iterator[Finding]:
    """Node ports that nobody has allocated, or that are answered nowhere on this node."""
    spec = facts.service.spec
    lacking = [one for one in facts.ports if not one.node_port]
    if spec.type == "NodePort" and lacking:
        yield Finding(
            Severity.IMPAIRED,
            f"port {lacking[0].name or lacking[0].port} has no node port",
            "its type is NodePort, and nobody has allocated one",
            "see that the API server allocates them, or write nodePort into the manifest",
        )
    if facts.node_port_ranges is None or not any(one.node_port for one in facts.ports):
        return
    families = {one.family for one in facts.frontends}
    served = {family_of(cidr.partition("/")[0]) for cidr in facts.node_port_ranges}
    if families and not families & served:
        yield Finding(
            Severity.IMPAIRED,
            "its node ports are answered at no address of this node",
            "the node has no address of its family, or traffic.nodePortAddresses has none of them",
            "see the addresses of the Node (kubectl get node -o wide) and traffic.nodePortAddresses",
        )


def pending(service: Service) -> bool:
    """Returns whether the Service waits for the address of a load balancer."""
    status = service.status
    given = status.load_balancer.ingress if status is not None and status.load_balancer is not None else None
    return service.spec.type == "LoadBalancer" and not given and not service.spec.external_ips


def misplaced(facts: ServiceFacts, accounts: Sequence[Account]) -> tuple[str, str]:
    """Returns why no endpoint is assigned to this node, and what to do; two empty texts if they simply run elsewhere."""
    node = facts.context.node_name
    nodes = sorted({one.node for one in accounts})
    if nodes == [""]:
        return ("no endpoint says on which node it is", "write nodeName into the EndpointSlices")
    alike = next((one for one in nodes if one != node and _short(one) == _short(node)), None)
    if alike is not None:
        return (f"this node is {node}, and endpoints are on {alike}", f"give the agent that name: --node-name {alike}")
    return "", ""


def _short(name: str) -> str:
    return name.lower().partition(".")[0]


def of_external_name(service: Service) -> Finding | None:
    """Returns what is wrong with the externalName of a Service, or None."""
    name = service.spec.external_name or ""
    own = f"{service.metadata.name}.{service.metadata.namespace}.svc"
    why, do = "", "write the name of a host into externalName"
    if parse_address(name.strip("[]")) is not None:
        why = f"externalName {name} is an address, and names are translated to names"
        do = "make it a Service without selector, and an EndpointSlice with that address"
    elif not _NAME.fullmatch(name):
        why = (
            f"externalName {name!r} is not the name of a host: without scheme, port and path" if name else "it has none"
        )
    elif name.rstrip(".").lower() == own or name.lower().startswith(f"{own}."):
        why = f"externalName {name} is its own name"
    return Finding(Severity.BROKEN, "its name leads nowhere", why, do) if why else None


def of_headless(service: Service, slices: Sequence[EndpointSlice]) -> Finding | None:
    """Returns a finding if a headless Service has slices but no ready endpoint: then its name has no address."""
    endpoints = [endpoint for one in slices for endpoint in one.endpoints or ()]
    if not slices or any(one.conditions is None or one.conditions.ready is not False for one in endpoints):
        return None
    namespace, name = service.metadata.namespace, service.metadata.name
    if not endpoints:
        why = "its EndpointSlices are empty: its selector matches no pod that has an address"
        return Finding(
            Severity.BROKEN, "its name leads nowhere", why, f"kubectl -n {namespace} describe service {name}"
        )
    return Finding(
        Severity.BROKEN,
        "its name leads nowhere",
        f"{none_of_its(len(endpoints), 'endpoint')} ready",
        f"see what their readiness probes say (kubectl -n {namespace} describe pods), or set publishNotReadyAddresses",
    )
