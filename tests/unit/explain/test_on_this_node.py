"""What is wrong with the node comes into the verdict of a Service that it concerns."""

import pytest

from nodeagent.explain.facts import Facts
from nodeagent.explain.kernel import NodeFault, StoppedWay
from nodeagent.explain.service import explain_service
from nodeagent.translate.context import Context
from nodeagent.translate.translator import Translator
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port
from tests.unit.explain.test_verdicts import World

FULL = NodeFault(
    "connections by way of this node fail", "connection table: it is full", "sysctl -w x=1", "", broken=True
)
STOPPED = StoppedWay("this node", "10.96.0.10:80/TCP", "no route", "add one")


def verdict(faults: tuple[NodeFault, ...] = (), stopped: tuple[StoppedWay, ...] = ()) -> str:
    service = make_service("web", "10.96.0.10", ports=(service_port(80, name="http"),))
    world = World(service, made := make_slice(service, [make_endpoint("10.244.1.10", "node-a")]))
    context = Context(node_name="node-a")
    translator = Translator()
    translator.update(world, None, context)
    (state,) = translator.states.values()
    facts = Facts(service=service, slices=[made], context=context, state=state, node_faults=faults, stopped=stopped)
    return explain_service(facts).verdict


@pytest.mark.parametrize(
    ("faults", "stopped", "says"),
    [
        ((), (), "healthy: 1 of 1 endpoints used"),
        ((FULL,), (), "broken: connections by way of this node fail, because connection table: it is full, do: sysctl"),
        ((NodeFault("a", "b", "c", "IPv4"),), (), "impaired: a, because b, do: c"),
        ((NodeFault("a", "b", "c", "IPv6", broken=True),), (), "healthy: 1 of 1 endpoints used"),
        ((), (STOPPED,), "broken: connections of this node to 10.96.0.10:80/TCP fail, because no route, do: add one"),
        (
            (),
            (StoppedWay("this node", "p", "b", "c", "1/3"),),
            "impaired: connections of this node to p fail in 1/3 of",
        ),
        ((), (StoppedWay("this node", "p", "b", "c", meant=True),), "healthy: 1 of 1 endpoints used"),
    ],
)
def test_the_node_is_in_the_verdict(faults: tuple[NodeFault, ...], stopped: tuple[StoppedWay, ...], says: str) -> None:
    assert verdict(faults, stopped).startswith(says)
