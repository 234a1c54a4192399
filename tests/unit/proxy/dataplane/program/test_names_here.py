"""Where queries for names go: to this node's process while it answers and is there, else as the DNS Service says."""

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.diagnosis.simulator.packet import TCP, UDP, Fate, Outcome, Packet
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import (
    Backend,
    Frontend,
    FrontendKind,
    NamesHere,
    NodeState,
    Route,
    ServiceState,
)
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import classes_in, empty_image, timeouts_in
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program

V4, V6 = Family.IPV4, Family.IPV6
SERVICE = {V4: "10.96.0.10", V6: "fd00:96::10"}
OWN = {V4: "169.254.20.10", V6: "fd00:20::10"}
SERVER = {V4: "10.244.2.2", V6: "fd00:244:2::2"}
POD = {V4: "10.244.9.9", V6: "fd00:244:9::9"}
KEY = ObjectKey("kube-system", "kube-dns")
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [UDP, TCP], ids=["udp", "tcp"])


def dns_service(family: Family, *, servers: bool) -> ServiceState:
    backends = (Backend(SERVER[family], 53),) if servers else ()
    frontends = tuple(
        Frontend(
            FrontendKind.CLUSTER_IP,
            family,
            SERVICE[family],
            protocol,
            53,
            ServicePortName(KEY, "dns", protocol),
            Route(backends),
        )
        for protocol in (Protocol.UDP, Protocol.TCP)
    )
    return ServiceState(KEY, cluster_ips=(SERVICE[family],), frontends=frontends)


class Node:
    """A node that answers names at the DNS Service's ClusterIP and at an address of its own."""

    def __init__(self, family: Family, *, servers: bool = True) -> None:
        self.family = family
        self.desired = DesiredImage(family)
        self.local = {SERVICE[family], OWN[family]}
        self.listening = True
        self.names = NamesHere(tuple((address[family], 53) for address in (SERVICE, OWN)), answering=True)
        self.serve(dns_service(family, servers=servers))

    def serve(self, state: ServiceState | None) -> None:
        self.desired.update({KEY: state}, empty_image(schema.DATA_SETS))
        self.desired.set_node(NodeState(names=self.names))

    def answers(self, answering: bool) -> None:
        self.names = NamesHere(self.names.places, answering)
        self.desired.set_node(NodeState(names=self.names))

    def outcome(
        self, address: str, protocol: int, *, iif: str | None = "eth0", port: int = 53, sender: int = 40000
    ) -> Outcome:
        image = self.desired.image
        program = build_program(self.family, ProgramOptions(names=True), classes_in(image), timeouts_in(image))
        specs = {spec.name: spec for spec in schema.set_specs(counters=True)}
        sockets = [(place, one, 53) for place, _ in self.names.places for one in (UDP, TCP)] if self.listening else []
        interpreter = Interpreter(program, specs, {**image, schema.AFFINITY: {}}, self.local, sockets)
        source = POD[self.family] if iif else address
        (outcome,) = interpreter.outcomes(Packet(source, address, protocol, port, sender, iif=iif))
        return outcome


def stays(outcome: Outcome) -> bool:
    """Whether it goes to a socket of this node, at the address that was asked."""
    return outcome.delivered_here and outcome.fate in (Fate.UNTOUCHED, Fate.TRANSLATED)


@FAMILIES
@PROTOCOLS
@pytest.mark.parametrize("iif", ["eth0", None], ids=["pod", "node"])
class TestTheDnsServicesAddress:
    def test_is_answered_here_and_datagrams_are_not_tracked(self, family: Family, protocol: int, iif: str) -> None:
        outcome = Node(family).outcome(SERVICE[family], protocol, iif=iif)
        assert stays(outcome)
        assert (outcome.destination, outcome.port) == (SERVICE[family], 53)
        assert outcome.untracked is (protocol == UDP), "a connection stays with whom it began"

    def test_leads_to_the_endpoints_while_nobody_answers_here(self, family: Family, protocol: int, iif: str) -> None:
        node = Node(family)
        node.answers(False)
        assert node.outcome(SERVICE[family], protocol, iif=iif).endpoint == (SERVER[family], 53)
        node.answers(True)
        assert stays(node.outcome(SERVICE[family], protocol, iif=iif))

    def test_queries_wait_here_when_there_are_no_endpoints(self, family: Family, protocol: int, iif: str) -> None:
        node = Node(family, servers=False)
        node.answers(False)
        assert stays(node.outcome(SERVICE[family], protocol, iif=iif))
        node.serve(dns_service(family, servers=True))
        assert node.outcome(SERVICE[family], protocol, iif=iif).endpoint == (SERVER[family], 53)

    def test_names_are_answered_here_also_without_a_service(self, family: Family, protocol: int, iif: str) -> None:
        node = Node(family)
        node.serve(None)
        outcome = node.outcome(SERVICE[family], protocol, iif=iif)
        assert (stays(outcome), outcome.untracked) == (True, True)

    def test_leads_to_the_endpoints_where_the_node_has_not_got_it(
        self, family: Family, protocol: int, iif: str
    ) -> None:
        node = Node(family)
        node.local.remove(SERVICE[family])
        assert node.outcome(SERVICE[family], protocol, iif=iif).endpoint == (SERVER[family], 53)

    def test_other_ports_of_it_are_refused_as_ever(self, family: Family, protocol: int, iif: str) -> None:
        assert Node(family).outcome(SERVICE[family], protocol, iif=iif, port=54).fate is Fate.REFUSED


@FAMILIES
@PROTOCOLS
def test_queries_of_pods_lead_to_the_endpoints_when_agent_and_process_are_both_gone(
    family: Family, protocol: int
) -> None:
    """The elements are still there; a socket is not."""
    node = Node(family)
    node.listening = False
    assert node.outcome(SERVICE[family], protocol).endpoint == (SERVER[family], 53)


@FAMILIES
@PROTOCOLS
def test_an_address_that_no_service_has_is_never_tracked(family: Family, protocol: int) -> None:
    node = Node(family)
    for answering in (True, False):
        node.answers(answering)
        outcome = node.outcome(OWN[family], protocol)
        assert (stays(outcome), outcome.untracked) == (True, True)


@FAMILIES
def test_answers_leave_untracked_also_while_queries_go_elsewhere(family: Family) -> None:
    """Else the tracked query of the same client to an endpoint would make this answer come from another port."""
    node = Node(family)
    node.answers(False)
    image = node.desired.image
    program = build_program(family, ProgramOptions(names=True), classes_in(image), timeouts_in(image))
    specs = {spec.name: spec for spec in schema.set_specs(counters=True)}
    interpreter = Interpreter(program, specs, {**image, schema.AFFINITY: {}}, node.local)
    for protocol, untracked in ((UDP, True), (TCP, False)):
        answer = Packet(SERVICE[family], POD[family], protocol, 40000, source_port=53, iif=None)
        (outcome,) = interpreter.outcomes(answer)
        assert (outcome.fate, outcome.untracked) == (Fate.UNTOUCHED, untracked)


def test_elements_change_only_where_the_answer_changes() -> None:
    node = Node(V4)
    node.desired.take_dirty()
    node.answers(True)
    assert not node.desired.dirty
    node.answers(False)
    assert {name: len(keys) for name, keys in node.desired.take_dirty().items()} == {
        schema.DNS_UNTRACKED: 1,
        schema.DNS_TRACKED: 1,
    }
    node.names = NamesHere()
    node.answers(False)
    assert not any(node.desired.image[name] for name in (schema.DNS_UNTRACKED, schema.DNS_TRACKED, schema.DNS_REPLIES))


@FAMILIES
@pytest.mark.parametrize("former", [True, False], ids=["a process ends", "no process"])
def test_a_late_answer_of_a_process_that_ends_is_not_refused(family: Family, former: bool) -> None:
    """The node's own programs ask from the ClusterIP itself; a tracked packet to a port of it that nobody serves is refused."""
    node = Node(family)
    node.names = NamesHere(former=node.names.places) if former else NamesHere()
    node.desired.set_node(NodeState(names=node.names))
    query = node.outcome(SERVICE[family], UDP, iif=None)
    assert query.endpoint == (SERVER[family], 53), "no query comes any more"
    answer = node.outcome(SERVICE[family], UDP, iif=None, port=40000, sender=53)
    assert answer.fate is (Fate.UNTOUCHED if former else Fate.REFUSED)
    assert answer.untracked is former
