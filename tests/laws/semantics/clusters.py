"""Random clusters: Services, slices, a Node and what a configuration says, with what is odd about each now and then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR, key_of, service_of

Json = dict[str, Any]
HERE = "here"
BOTH = ("IPv4", "IPv6")
POD_INTERFACE = {"interface": "cni0", "prefix": "veth12"}
OTHER_POD_INTERFACE = "br7"

CLUSTER_IPS = {"IPv4": ("10.96.0.1", "010.96.0.02", "10.96.0.3"), "IPv6": ("fd00:96::1", "fd00:96:0::2", "fd00:96::3")}
UNCLAIMED = {"IPv4": "10.96.0.200", "IPv6": "fd00:96::200"}
NODE = {"IPv4": ("192.168.0.2", "172.16.0.2"), "IPv6": ("2001:db8::2", "2001:db8:f::2")}
GATEWAY = {"IPv4": "10.244.1.1", "IPv6": "fd00:244:1::1"}
LOOPBACK = {"IPv4": "127.0.0.1", "IPv6": "::1"}
OUTSIDE = {"IPv4": ("203.0.113.2", "198.51.100.130", "10.9.9.9"), "IPv6": ("2001:db8:ffff::2", "2001:db8:100::82")}
VIPS = {"IPv4": ("198.51.100.1", "198.51.100.002"), "IPv6": ("2001:db8:100::1", "2001:db8:100::2")}
ENDPOINTS = {
    "IPv4": {
        "10.244.1.10": HERE,
        "010.244.1.11": HERE,
        "10.244.2.10": "there",
        "10.244.2.11": "there",
        "10.244.3.10": None,
        "192.168.0.2": HERE,
        "127.0.0.9": HERE,
        "nowhere": "there",
    },
    "IPv6": {
        "fd00:244:1::a": HERE,
        "fd00:244:1:0::b": HERE,
        "fd00:244:2::a": "there",
        "fd00:244:3::a": None,
        "2001:db8::2": HERE,
        "fe80::1": HERE,
    },
}
"""Address → node. An address lives in one place, whatever slices name it."""

RANGES = (
    "203.0.113.0/25", " 198.51.100.128/25", "192.168.0.2/32", "172.16.0.2/32", "10.244.1.0/24", "0.0.0.0/0",
    "2001:db8:ffff::/64", "2001:db8::/64 ", "fd00:244::/32", "203.0.113.2", "10.244.0.0/33", "", "10.244.1.77/16",
)  # fmt: skip
SOURCE_RANGES = st.sampled_from(
    [[], ["192.168.0.0/24", "2001:db8::/64"], ["172.16.0.2/32", "2001:db8:f::2/128"], ["203.0.113.0/24"]]
) | st.lists(st.sampled_from(RANGES), max_size=3, unique=True)
NODE_PORT_ADDRESSES = st.sampled_from([(), ("primary",), ("all",)]) | st.lists(
    st.sampled_from(
        [
            "192.168.0.0/16",
            "172.16.0.0/24",
            "127.0.0.0/8",
            "0.0.0.0/0",
            "10.244.1.0/24",
            "2001:db8::/64",
            "::/0",
            "bad/1",
        ]
    ),
    min_size=1,
    max_size=3,
).map(tuple)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


def sublists(*members: Any, most: int = 2) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(members), max_size=most, unique=True)


THREE_VALUED = st.sampled_from([True, False, None])
POLICY = st.sampled_from(["Cluster", "Local"])
PROTOCOL = st.sampled_from(["TCP", "TCP", "UDP", "SCTP", None])
ALIVE = st.none() | st.just({"ready": True}) | optional(ready=THREE_VALUED, serving=THREE_VALUED)
UNREADY = st.sampled_from([{"ready": False}, {"ready": False, "serving": False}])
DYING = st.sampled_from(
    [{"ready": False, "serving": True}, {"ready": False}, {"ready": False, "serving": False}, {"serving": False}, {}]
)
HEALTH = ((ALIVE, DYING), (ALIVE, DYING), (ALIVE, DYING), (UNREADY, DYING), (UNREADY | ALIVE, DYING))
"""Conditions of the endpoints of one service, those that are not terminating and those that are."""

ZONE_HINTS = st.sampled_from([["zone-a"], ["zone-b"], ["zone-a", "zone-b"]])
NODE_HINTS = st.sampled_from([[HERE], ["there"], [HERE, "there"]])
NO_HINTS: st.SearchStrategy[Any] = st.sampled_from([[], None])


def hints(zones: st.SearchStrategy[Any], nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """As the controllers write them, by node and zone."""
    return st.builds(
        lambda zones, nodes: {
            "forZones": zones and [{"name": zone} for zone in zones],
            "forNodes": nodes and [{"name": node} for node in nodes],
        },
        zones,
        nodes,
    )


HINTING = (
    st.none(),
    st.none() | hints(ZONE_HINTS, NO_HINTS),
    hints(ZONE_HINTS, NO_HINTS),
    hints(ZONE_HINTS, NODE_HINTS),
    hints(ZONE_HINTS | NO_HINTS, NODE_HINTS | NO_HINTS),
)
"""How the endpoints of one service are hinted: topology needs all of them to be."""

service_ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.sampled_from([80, 443])},
        optional={
            "name": st.sampled_from(["http", "dns"]),
            "protocol": PROTOCOL,
            "nodePort": st.sampled_from([0, 30080, 30443, 80]),
        },
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda port: (port.get("name") or "", port.get("protocol") or "TCP"),
)
ingress = st.lists(
    st.fixed_dictionaries(
        {"ip": st.sampled_from([*VIPS["IPv4"], *VIPS["IPv6"]] * 3 + [NODE["IPv4"][1], CLUSTER_IPS["IPv6"][0]])},
        optional={"ipMode": st.sampled_from(["VIP", "VIP", "Proxy", None])},
    )
    | st.just({"hostname": "lb.example"}),
    min_size=1,
    max_size=4,
)
EXTERNAL_IPS = (
    "198.51.100.1", "198.51.100.77", "2001:db8:100::1", "192.168.0.2", "10.96.0.1", "fd00:96::3", "10.96.0.200", "127.0.0.1",
    "nonsense", "",
)  # fmt: skip
AFFINITY_CONFIG = st.sampled_from([None, {}, {"clientIP": {"timeoutSeconds": 7}}])


@st.composite
def services(draw: st.DrawFn, name: str) -> Json:
    families = draw(st.sampled_from([BOTH, BOTH, BOTH[::-1], BOTH[::-1], ("IPv4",), ("IPv6",)]))
    cluster_ips = [draw(st.sampled_from(CLUSTER_IPS[family])) for family in families]
    spec: Json = draw(
        optional(
            type=st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"]),
            internalTrafficPolicy=POLICY,
            externalTrafficPolicy=POLICY,
            externalIPs=sublists(*EXTERNAL_IPS),
            loadBalancerSourceRanges=SOURCE_RANGES,
            sessionAffinity=st.sampled_from(["None", "ClientIP"]),
            sessionAffinityConfig=AFFINITY_CONFIG,
        )
    )
    spec["clusterIP"] = cluster_ips[0]
    if draw(st.integers(0, 9)):
        spec |= {"clusterIPs": cluster_ips, "ipFamilies": list(families)}
    if not draw(st.integers(0, 19)):
        spec |= draw(st.sampled_from([{"type": "ExternalName"}, {"clusterIP": "None"}, {"clusterIP": ""}]))
    spec["ports"] = draw(service_ports)
    created = draw(st.sampled_from([None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]))
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": created,
            "labels": draw(SERVICE_LABELS),
        },
        "spec": spec,
        "status": {"loadBalancer": {"ingress": draw(ingress)}} if draw(st.booleans()) else None,
    }


@st.composite
def slices(draw: st.DrawFn, service: Json) -> list[Json]:
    """Slices that may overlap. Which of two equal live endpoints counts is nobody's to say, so they agree."""
    listed: list[Json] = []
    name = service["metadata"]["name"]
    hinting = draw(st.sampled_from(HINTING))
    living, leaving = draw(st.sampled_from(HEALTH))
    wanted = [(port.get("name") or "", port.get("protocol")) for port in service["spec"]["ports"]]
    for family in BOTH:
        some = draw(st.lists(st.sampled_from([*ENDPOINTS[family]]), min_size=2, max_size=5, unique=True))
        homes = {address: ENDPOINTS[family][address] for address in some}
        alive = {address: draw(endpoint_details(living, hinting)) for address in homes}
        dying = {address: draw(endpoint_details(leaving, hinting, terminating=True)) for address in homes}
        for number in range(draw(st.sampled_from([0, 1, 1, 2, 2]))):
            member = st.tuples(st.sampled_from([*homes]), st.sampled_from([False, False, True]))
            label = {"kubernetes.io/service-name": name} if draw(st.integers(0, 19)) else draw(UNLABELLED)
            if not draw(st.integers(0, 19)):
                label = {**(label or {}), "service.kubernetes.io/headless": ""}
            listed.append(
                {
                    "metadata": {"name": f"{name}-{family.lower()}-{number}", "namespace": "default", "labels": label},
                    "addressType": family if draw(st.integers(0, 19)) else "FQDN",
                    "ports": [
                        {"name": port, "protocol": protocol, "port": draw(st.sampled_from([8080, 8080, 9090]))}
                        for port, protocol in wanted
                        if draw(st.integers(0, 9))
                    ]
                    + draw(odd_slice_ports),
                    "endpoints": [
                        {
                            "addresses": [address, *draw(sublists(address, "10.244.9.9", most=1))],
                            "nodeName": homes[address],
                            **(dying if terminating else alive)[address],
                        }
                        for address, terminating in draw(
                            st.lists(member, min_size=draw(st.sampled_from([0, 2, 3, 4])), max_size=5)
                        )
                    ],
                }
            )
    return listed


SERVICE_LABELS = st.sampled_from([None] * 19 + [{"service.kubernetes.io/service-proxy-name": ""}])
UNLABELLED = st.sampled_from([{}, None, {"kubernetes.io/service-name": ""}, {"kubernetes.io/service-name": "other"}])
odd_slice_ports = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["", "http", "dns", None])},
        optional={"port": st.sampled_from([8080, 0, None]), "protocol": PROTOCOL},
    ),
    max_size=1,
)


@st.composite
def endpoint_details(
    draw: st.DrawFn, conditions: st.SearchStrategy[Any], hinting: st.SearchStrategy[Any], *, terminating: bool = False
) -> Json:
    details = {"conditions": draw(conditions), "hints": draw(hinting)}
    if terminating:
        details["conditions"] = details["conditions"] | {"terminating": True}
    return details


node_objects = st.builds(
    lambda zone, addresses: {
        "metadata": {"name": HERE, "labels": {"topology.kubernetes.io/zone": zone} if zone else None},
        "spec": {"podCIDRs": ["10.244.1.0/24", "fd00:244:1::/48"]},
        "status": {"addresses": [{"type": kind, "address": address} for kind, address in addresses]},
    },
    st.sampled_from([None, "zone-a", "zone-b"]),
    st.permutations(
        [
            ("ExternalIP", NODE["IPv4"][1]),
            ("InternalIP", NODE["IPv4"][0]),
            ("InternalIP", NODE["IPv6"][0]),
            ("ExternalIP", NODE["IPv6"][1]),
            ("Hostname", HERE),
        ]
    )
    | st.just([("ExternalIP", NODE["IPv4"][1])]),
)
NODES = node_objects | node_objects | st.none()


@dataclass(frozen=True)
class Cluster:
    """Objects and settings; what the translation reads. detection: see PodDetection and DetectLocal. bridged: the interface of
    pods is a bridge, and br_netfilter brings what they send each other to the rules."""

    raw_services: list[Json]
    raw_slices: list[Json]
    raw_node: Json | None
    detection: str
    cluster_cidrs: tuple[str, ...] = ()
    node_port_addresses: tuple[str, ...] = ()
    service_cidr_texts: tuple[str, ...] = ()
    masquerade_all: bool = False
    external_ips: bool = True
    on_interface: bool = False
    holds_vips: bool = False
    bridged: bool = False
    services: Mapping[ObjectKey, Service] = field(init=False)
    slices: Sequence[EndpointSlice] = field(init=False)

    def __post_init__(self) -> None:
        found = [msgspec.convert(service, Service) for service in self.raw_services]
        object.__setattr__(self, "services", {key_of(service): service for service in found})
        object.__setattr__(self, "slices", [msgspec.convert(item, EndpointSlice) for item in self.raw_slices])

    def slices_of(self, service: ObjectKey) -> list[EndpointSlice]:
        return [item for item in self.slices if service_of(item) == service]

    @property
    def node(self) -> Node | None:
        return None if self.raw_node is None else msgspec.convert(self.raw_node, Node)

    @property
    def service_cidrs(self) -> list[ServiceCIDR]:
        spec = {"cidrs": self.service_cidr_texts}
        return [msgspec.convert({"metadata": {"name": "kubernetes"}, "spec": spec}, ServiceCIDR)]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    names = draw(st.sampled_from([("alpha",), ("beta", "alpha"), ("alpha", "beta", "gamma")]))
    applied = [draw(services(name)) for name in names]
    detection = draw(st.sampled_from(["none", "cluster-cidr", "cluster-cidr", "node-cidr", "interface", "prefix"]))
    node = draw(NODES)
    if detection == "node-cidr" and node is None:
        detection = "none"
    return Cluster(
        applied,
        [each for service in applied for each in draw(slices(service))],
        node,
        detection,
        draw(st.sampled_from([("10.244.0.0/16", "fd00:244::/32"), ("10.244.0.0/16", "10.0.0.0/8"), ("fd00:244::/32",)]))
        if detection == "cluster-cidr"
        else (),
        draw(NODE_PORT_ADDRESSES),
        draw(st.sampled_from([(), ("10.96.0.0/16",), ("10.96.0.0/24", "10.96.0.0/16", "fd00:96::/112")])),
        draw(st.booleans()),
        draw(st.integers(0, 9)) > 0,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
    )
