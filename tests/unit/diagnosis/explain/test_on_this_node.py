"""What is wrong with the node comes into the verdict of a Service that it concerns."""

import pytest

from nodeagent.diagnosis.explain.kernel import NodeFault, Probe, ProbeResult, StoppedConnection
from nodeagent.diagnosis.explain.reservations import reservations
from nodeagent.diagnosis.explain.service import explain_service
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.model.problem_subjects import TO_ENDPOINTS
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port
from tests.unit.diagnosis.explain.test_verdicts import World

FULL = NodeFault(
    "connections by way of this node fail", "connection table: it is full", "sysctl -w x=1", "", broken=True
)
STOPPED = StoppedConnection("this node", "10.96.0.10:80/TCP", "no route", "add one")


def verdict(faults: tuple[NodeFault, ...] = (), stopped: tuple[StoppedConnection, ...] = ()) -> str:
    service = make_service("web", "10.96.0.10", ports=(service_port(80, name="http"),))
    world = World(service, made := make_slice(service, [make_endpoint("10.244.1.10", "node-a")]))
    context = Context(node_name="node-a")
    translator = Translator()
    translator.update(world, None, context)
    (state,) = translator.states.values()
    facts = ServiceFacts(
        service=service, slices=[made], context=context, state=state, node_faults=faults, stopped=stopped
    )
    return explain_service(facts).verdict


@pytest.mark.parametrize(
    ("faults", "stopped", "says"),
    [
        ((), (), "healthy: 1 of 1 endpoints used"),
        ((FULL,), (), "broken: connections by way of this node fail, because connection table: it is full; sysctl"),
        ((NodeFault("a", "b", "c", "IPv4"),), (), "impaired: a, because b; c"),
        ((NodeFault("a", "b", "c", "IPv6", broken=True),), (), "healthy: 1 of 1 endpoints used"),
        ((), (STOPPED,), "broken: connections of this node to 10.96.0.10:80/TCP fail, because no route; add one"),
        (
            (),
            (StoppedConnection("this node", "p", "b", "c", "1/3"),),
            "impaired: connections of this node to p fail in 1/3 of",
        ),
        ((), (StoppedConnection("this node", "p", "b", "c", meant=True),), "healthy: 1 of 1 endpoints used"),
    ],
)
def test_the_node_is_in_the_verdict(
    faults: tuple[NodeFault, ...], stopped: tuple[StoppedConnection, ...], says: str
) -> None:
    assert verdict(faults, stopped).startswith(says)


@pytest.mark.parametrize(
    ("names_at", "ports", "says"),
    [
        (("10.96.0.10",), (53,), "healthy: this node answers its names itself"),
        (("10.96.0.10",), (53, 9153), "broken: it has no endpoints"),
        (("10.96.0.99",), (53,), "broken: it has no endpoints"),
        ((), (53,), "broken: it has no endpoints"),
    ],
)
def test_a_service_whose_names_this_node_answers(names_at: tuple[str, ...], ports: tuple[int, ...], says: str) -> None:
    service = make_service("kube-dns", "10.96.0.10", ports=tuple(service_port(one, name=f"p{one}") for one in ports))
    translator = Translator()
    context = Context(node_name="node-a")
    translator.update(World(service), None, context)
    (state,) = translator.states.values()
    found = explain_service(ServiceFacts(service=service, slices=[], context=context, state=state, names_at=names_at))
    assert found.verdict.startswith(says)
    assert found.healthy == says.startswith("healthy")


def test_a_node_of_one_family_answers_names_at_its_addresses_of_that_family() -> None:
    port = service_port(53, name="dns")
    service = make_service("kube-dns", "10.96.0.10", "fd00:10:96::a", ports=(port,))
    context = Context(node_name="node-a", families=(Family.IPV4,))
    translator = Translator()
    translator.update(World(service), None, context)
    (state,) = translator.states.values()
    found = explain_service(
        ServiceFacts(service=service, slices=[], context=context, state=state, names_at=("10.96.0.10",))
    )
    assert found.verdict == "healthy: this node answers its names itself"


def test_an_endpoint_of_two_protocols_is_one() -> None:
    """It is tried once for each, and counted and named once; what was not tried is said."""
    service = make_service("web", "10.96.0.10", ports=(service_port(80, name="http"),))
    made = make_slice(service, [make_endpoint(f"10.244.1.{number}", "node-a") for number in (10, 11, 12)])
    translator = Translator()
    context = Context(node_name="node-a")
    translator.update(World(service, made), None, context)
    (state,) = translator.states.values()
    ports = {one.port for one in made.ports or ()}
    places = [f"10.244.1.{number}:{port}" for number in (10, 11) for port in ports]
    fine, gone = ProbeResult.ACCEPTED, ProbeResult.UNREACHABLE
    probes = [Probe(places[0], fine), Probe(places[0], fine), Probe(places[1], gone, "x"), Probe(places[1], gone, "x")]
    facts = ServiceFacts(service=service, slices=[made], context=context, state=state, probes=probes)
    assert explain_service(facts).verdict.startswith(
        f"impaired: 1 of 2 endpoints cannot be reached, because this node has no way to them: {places[1]} (x); 1 more were"
    )


def test_a_good_verdict_still_lists_unread_parts_and_faults_of_the_node() -> None:
    """Control: a way to the endpoints of another Service that is lost is not of this one."""
    service = make_service("web", "10.96.0.10", ports=(service_port(80, name="http"),))
    made = make_slice(service, [make_endpoint("10.244.1.10", "node-a")])
    translator = Translator()
    context = Context(node_name="node-a")
    translator.update(World(service, made), None, context)
    (state,) = translator.states.values()
    of_node = Problem("reverse path filter", "ReversePathDrops", "it drops packets")
    of_others = Problem(TO_ENDPOINTS, "EndpointsUnreachable", "this node has no way to endpoint 10.244.9.9")
    for problems, unseen, says in (
        ((), (), ""),
        ((of_others,), (), ""),
        ((of_node,), (), "; this node has a problem, reverse path filter: nodeagent problems"),
        ((), ("table ip x was not read", "y"), "; as far as is known: table ip x was not read"),
    ):
        facts = ServiceFacts(
            service=service, slices=[made], context=context, state=state, problems=problems, unseen=unseen
        )
        assert explain_service(facts).verdict == f"healthy: 1 of 1 endpoints used{says}"
        assert explain_service(facts).healthy
    assert "routes to endpoints" in reservations((of_others,), (), of_all=True)


@pytest.mark.parametrize(("answer", "found"), [(ProbeResult.SILENT, "broken"), (ProbeResult.ACCEPTED, "healthy")])
def test_a_rule_that_this_nodes_own_connections_have_met_is_no_guess(answer: ProbeResult, found: str) -> None:
    service = make_service("web", "10.96.0.10", ports=(service_port(80, name="http"),))
    made = make_slice(service, [make_endpoint("10.244.1.10", "node-a")])
    translator = Translator()
    context = Context(node_name="node-a")
    translator.update(World(service, made), None, context)
    (state,) = translator.states.values()
    stopped = StoppedConnection("this node", "10.96.0.10:80/TCP", "a rule", "change it", meant=True, of_node=True)
    facts = ServiceFacts(
        service=service,
        slices=[made],
        context=context,
        state=state,
        stopped=(stopped,),
        probes=(Probe("10.244.1.10:8080", answer),),
    )
    verdict = explain_service(facts).verdict
    assert verdict.startswith(found)
    assert ("because a rule; change it" in verdict) is (found == "broken")
