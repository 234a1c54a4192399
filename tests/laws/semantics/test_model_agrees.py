"""For any cluster, the rules and elements we program do to a connection what the model of the semantics says."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import Fate, Outcome, Packet
from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import TableImage, classes_in, empty_image, timeouts_in
from nodeagent.proxy.dataplane.program.chain import PodDetection, Program, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.proxy.dataplane.program.schema import AFFINITY, DATA_SETS, set_specs
from nodeagent.proxy.translate.node_state import DetectLocal, TranslationOptions, node_context, node_state
from nodeagent.proxy.translate.translator import Translator
from tests.harness.effort import examples
from tests.laws.semantics.clusters import (
    CLUSTER_IPS,
    ENDPOINTS,
    EXTERNAL_IPS,
    GATEWAY,
    HERE,
    LOOPBACK,
    NODE,
    OTHER_POD_INTERFACE,
    OUTSIDE,
    POD_INTERFACE,
    UNCLAIMED,
    VIPS,
    Cluster,
    clusters,
)

SPECS = {spec.name: spec for spec in set_specs(counters=True)}
VERDICTS = {
    Fate.TRANSLATED: "endpoints",
    Fate.REFUSED: "refuse",
    Fate.DROPPED: "drop",
    Fate.UNTOUCHED: "none",
}


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
        of_family = [cidr for cidr in cluster.cluster_cidrs if (":" in cidr) is (self.family is Family.IPV6)]
        detects = cluster.detection == "node-cidr" or of_family
        kind = PodDetection.CIDR if detects else PodDetection.NONE
        pod_range = of_family[0] if of_family and cluster.detection != "node-cidr" else ""
        return ProgramOptions(kind, "", cluster.masquerade_all, pod_range=pod_range)

    def interpreter(self, affinity: Mapping[bytes, bytes] | None = None) -> Interpreter:
        elements = {**self.image, AFFINITY: dict(affinity or {})}
        bridges = {self.pod_interface: self.pods - self.local} if self.cluster.bridged else {}
        return Interpreter(self.program, SPECS, elements, self.local, bridges=bridges)

    @property
    def pod_interface(self) -> str:
        """By which packets of this node's pods come in."""
        return POD_INTERFACE.get(self.cluster.detection, OTHER_POD_INTERFACE)

    @property
    def pods(self) -> set[str]:
        """Addresses of the pods of this node."""
        return {plain(address) for address, node in ENDPOINTS[self.family.value].items() if node == HERE}

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
        arrives = {"node": None, "outside": "eth0", "pod": self.pod_interface}
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


def shown(outcomes: Sequence[Outcome]) -> str:
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


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(cluster=clusters(), family=st.sampled_from(Family))
def test_every_connection_goes_where_the_model_says(judge: Judge, cluster: Cluster, family: Family) -> None:
    table = Table(cluster, family)
    interpreter = table.interpreter()
    for client, destination in itertools.product(table.clients(), table.destinations()):
        outcomes = interpreter.outcomes(table.packet(client, destination))
        answer = judge(cluster, table, client, destination)

        assert agree(outcomes, answer), f"{client} → {destination}: model {answer}, table\n{shown(outcomes)}"


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
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

                assert [outcome.endpoint for outcome in again] == [first.endpoint], (destination, shown(again))
            elif answer.verdict == "endpoints":
                outcomes = fresh.outcomes(packet)
                chosen = outcomes[pick % len(outcomes)]
                learned = chosen.learned.get(AFFINITY, {})

                assert bool(learned) is (answer.affinity is not None), (destination, shown([chosen]))
                if answer.affinity:
                    remembered[answer.affinity] = (table.interpreter(learned), chosen)
