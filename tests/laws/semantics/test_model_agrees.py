"""For any cluster, the rules and elements we program do to a connection what the model of the semantics says."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.dataplane.nft.chain import PodDetection, Program, ProgramOptions
from nodeagent.dataplane.nft.desired import DesiredImage, classes_in, timeouts_in
from nodeagent.dataplane.nft.image import TableImage, empty_image
from nodeagent.dataplane.nft.interpreter import Interpreter
from nodeagent.dataplane.nft.packet import Fate, Outcome, Packet
from nodeagent.dataplane.nft.program import build_program
from nodeagent.dataplane.nft.schema import AFFINITY, DATA_SETS, set_specs
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR, key_of, service_of
from nodeagent.translate.node import DetectLocal, TranslationOptions, node_context, node_state
from nodeagent.translate.translator import Translator
from tests.harness.effort import examples

Json = dict[str, Any]
HERE = "here"
BOTH = ("IPv4", "IPv6")
SPECS = {spec.name: spec for spec in set_specs(counters=True)}
VERDICTS = {
    Fate.TRANSLATED: "endpoints",
    Fate.REFUSED: "refuse",
    Fate.DROPPED: "drop",
    Fate.UNTOUCHED: "none",
}
POD_INTERFACE = {"interface": "cni0", "prefix": "veth12"}

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
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
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
    """Objects and settings; what the translation reads. detection: see PodDetection and DetectLocal."""

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
    )


class Table:
    """A cluster's table in one family, as a first pass writes it."""

    def __init__(self, cluster: Cluster, family: Family) -> None:
        self.cluster, self.family = cluster, family
        interfaces = {"interface": DetectLocal.BRIDGE_INTERFACE, "prefix": DetectLocal.INTERFACE_NAME_PREFIX}
        by_cidr = DetectLocal.NODE_CIDR if cluster.detection == "node-cidr" else DetectLocal.CLUSTER_CIDR
        node = TranslationOptions(
            node_name=HERE,
            detect_local=interfaces.get(cluster.detection, by_cidr),
            cluster_cidrs=cluster.cluster_cidrs,
            node_port_addresses=cluster.node_port_addresses,
            external_ips_enabled=cluster.external_ips,
        )
        context = node_context(cluster.node, node)
        translator = Translator()
        desired = DesiredImage(family)
        desired.update(translator.update(cluster, None, context), empty_image(DATA_SETS))
        desired.set_node(node_state(cluster.node, cluster.service_cidrs, node, context)[0])
        self.image: TableImage = {**desired.image, AFFINITY: {}}
        self.program: Program = build_program(
            family, self._options(), classes_in(desired.image), timeouts_in(desired.image)
        )
        version = family.value
        self.local = {*NODE[version], GATEWAY[version], LOOPBACK[version]}
        if cluster.on_interface:
            self.local |= {address for state in translator.states.values() for address in state.cluster_ips}
        if cluster.holds_vips:
            self.local.add(VIPS[version][0])
        self.local = {address for address in self.local if (":" in address) is (family is Family.IPV6)}

    def _options(self) -> ProgramOptions:
        cluster = self.cluster
        if cluster.detection in POD_INTERFACE:
            kind = PodDetection.INTERFACE if cluster.detection == "interface" else PodDetection.INTERFACE_PREFIX
            return ProgramOptions(kind, "cni0" if cluster.detection == "interface" else "veth", cluster.masquerade_all)
        of_family = any((":" in cidr) is (self.family is Family.IPV6) for cidr in cluster.cluster_cidrs)
        detects = cluster.detection == "node-cidr" or of_family
        return ProgramOptions(PodDetection.CIDR if detects else PodDetection.NONE, "", cluster.masquerade_all)

    def interpreter(self, affinity: Mapping[bytes, bytes] | None = None) -> Interpreter:
        return Interpreter(self.program, SPECS, {**self.image, AFFINITY: dict(affinity or {})}, self.local)

    def clients(self) -> Iterator[tuple[str, str]]:
        """(address, kind) of everyone who may connect."""
        version = self.family.value
        pods = [address for address, node in ENDPOINTS[version].items() if node == HERE]
        yield from ((plain(pod), "pod") for pod in pods[:2])
        yield from ((address, "outside") for address in OUTSIDE[version])
        yield (next(plain(address) for address, node in ENDPOINTS[version].items() if node == "there"), "outside")
        yield from ((address, "node") for address in sorted(self.local - {LOOPBACK[version]}))

    def destinations(self) -> Iterator[tuple[str, Protocol, int]]:
        """Every address of a service, and one of nobody, at every port; every address of the node at every node port."""
        version = self.family.value
        text = repr(self.cluster.raw_services)
        known = (*CLUSTER_IPS[version], *VIPS[version], *EXTERNAL_IPS)
        services = {plain(address) for address in known if is_address(address) and f"'{address}'" in text}
        services = {address for address in services if (":" in address) is (self.family is Family.IPV6)}
        node = {*NODE[version], GATEWAY[version], LOOPBACK[version]}
        ports = [port for service in self.cluster.raw_services for port in service["spec"]["ports"]]
        pairs = {(Protocol[port.get("protocol") or "TCP"], port["port"]) for port in ports}
        node_pairs = {(Protocol[port.get("protocol") or "TCP"], port.get("nodePort") or 0) for port in ports}
        node_pairs = {(protocol, number) for protocol, number in node_pairs if number}
        yield from ((address, *pair) for address in sorted(services) for pair in sorted(pairs))
        yield from ((address, *pair) for address in sorted(node) for pair in sorted(node_pairs))
        yield from ((address, *pair) for address in sorted(services)[:2] for pair in sorted(node_pairs))
        yield from (
            (address, Protocol.TCP, 81) for address in (UNCLAIMED[version], *sorted(services), NODE[version][0])
        )

    def packet(self, client: tuple[str, str], destination: tuple[str, Protocol, int]) -> Packet:
        source, kind = client
        arrives = {"node": None, "outside": "eth0", "pod": POD_INTERFACE.get(self.cluster.detection, "eth0")}
        address, protocol, port = destination
        return Packet(source, address, protocol, port, iif=arrives[kind])


def is_address(text: str) -> bool:
    return "." in text or ":" in text


def plain(address: str) -> str:
    """Canonical."""
    parts = address.split(".")
    return address.replace(":0::", "::") if len(parts) == 1 else ".".join(str(int(part)) for part in parts)


Judge = Callable[[Cluster, Table, tuple[str, str], tuple[str, Protocol, int]], Any]


@pytest.fixture(scope="session")
def judge(semantics: Any, client: Any, settings_of_model: Any) -> Judge:
    """What the model says."""

    def ask(cluster: Cluster, table: Table, source: tuple[str, str], to: tuple[str, Protocol, int]) -> Any:
        detector = "interface" if cluster.detection in POD_INTERFACE else cluster.detection
        settings = settings_of_model(
            HERE,
            detector,
            cluster.cluster_cidrs,
            cluster.node_port_addresses,
            cluster.service_cidr_texts,
            cluster.masquerade_all,
            cluster.external_ips,
            frozenset(table.local),
        )
        model = semantics(table.family.value, cluster.raw_services, cluster.raw_slices, cluster.raw_node, settings)
        return model.answer(client(*source), to[0], to[1].name, to[2])

    return ask


def told(outcomes: Sequence[Outcome]) -> str:
    return "\n\n".join("\n".join(map(str, outcome.trace)) for outcome in outcomes)


def agree(outcomes: Sequence[Outcome], answer: Any) -> bool:
    """Whether they say the same: fate, endpoints, an even spread, and whose source is rewritten."""
    if {VERDICTS[outcome.fate] for outcome in outcomes} != {answer.verdict}:
        return False
    if answer.verdict != "endpoints":
        return not any(outcome.masqueraded for outcome in outcomes)
    seen = {outcome.endpoint: outcome.masqueraded for outcome in outcomes}
    even = {outcome.probability for outcome in outcomes} == {Fraction(1, len(answer.endpoints))}
    return even and len(outcomes) == len(seen) and seen == answer.endpoints


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(cluster=clusters(), family=st.sampled_from(Family))
def test_every_connection_goes_where_the_model_says(judge: Judge, cluster: Cluster, family: Family) -> None:
    table = Table(cluster, family)
    interpreter = table.interpreter()
    for client, destination in itertools.product(table.clients(), table.destinations()):
        outcomes = interpreter.outcomes(table.packet(client, destination))
        answer = judge(cluster, table, client, destination)

        assert agree(outcomes, answer), f"{client} → {destination}: model {answer}, table\n{told(outcomes)}"


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(cluster=clusters(), family=st.sampled_from(Family), pick=st.integers(0, 1000))
def test_a_client_with_affinity_meets_its_endpoint_again_at_every_address_of_the_port(
    judge: Judge, cluster: Cluster, family: Family, pick: int
) -> None:
    table = Table(cluster, family)
    fresh = table.interpreter()
    for client in table.clients():
        remembered: dict[tuple[str, ...], tuple[Interpreter, Outcome]] = {}
        for destination in table.destinations():
            answer = judge(cluster, table, client, destination)
            packet = table.packet(client, destination)
            if answer.affinity in remembered:
                interpreter, first = remembered[answer.affinity]
                again = interpreter.outcomes(packet)

                assert [outcome.endpoint for outcome in again] == [first.endpoint], (destination, told(again))
            elif answer.verdict == "endpoints":
                outcomes = fresh.outcomes(packet)
                chosen = outcomes[pick % len(outcomes)]
                learned = chosen.learned.get(AFFINITY, {})

                assert bool(learned) is (answer.affinity is not None), (destination, told([chosen]))
                if answer.affinity:
                    remembered[answer.affinity] = (table.interpreter(learned), chosen)
