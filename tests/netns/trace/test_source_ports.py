"""A node whose address has no source port left towards an endpoint, as with many clients of one small Service."""

import re

import pytest

from nodeagent.model.addresses import Protocol
from tests.harness.cluster import NODE, TARGET_PORT, Cluster, cluster_ips
from tests.harness.objects import make_service, make_slices
from tests.netns.trace.planted_connections import BALANCER, connections
from tests.netns.trace.planting import GATEWAY, PORTS, SILENCE_SECONDS, check_line, first_line, program_again, works

pytestmark = pytest.mark.kernel

END = 65536
CLIENT = ("outside", BALANCER)
MANY = 40


@pytest.fixture(scope="module")
def balanced(node: Cluster) -> Cluster:
    """A load-balancer address whose connections are masqueraded to one endpoint."""
    service = make_service("talk", *cluster_ips(7), ports=PORTS, load_balancer_ips=(BALANCER,))
    places = [(node.world["web-0"].addresses, NODE)]
    node.manifests.put(*make_slices(service, places, target_port=TARGET_PORT), service)
    program_again(node)
    return node


def finds_nothing(node: Cluster, protocol: str) -> None:
    assert works(node.world, *CLIENT, protocol, read_with_retries=True)
    line, code = first_line(node.world, *CLIENT, protocol)
    assert (line.partition(":")[0], code, "as far as" in line) == ("arrives", 0, False), line
    assert check_line(node.world) == "healthy"


@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)
def test_no_source_port_is_left(balanced: Cluster, protocol: Protocol) -> None:
    world, name = balanced.world, protocol.name.lower()
    world.run(NODE, ["conntrack", "-F"])
    finds_nothing(balanced, name)
    says = f"all source ports of {GATEWAY} towards 10.244.1.10:8080/{protocol.name} are taken"
    with connections(balanced.world, protocol, END):
        line, code = first_line(world, *CLIENT, name)
        assert line.startswith("dropped: ")
        assert f", because {says}; see who opens so many: conntrack -L -r 10.244.1.10; " in line
        assert code == 1
        assert not works(world, *CLIENT, name, read_with_retries=False)
        assert check_line(world).startswith(f"not healthy: source ports, because {says}: new connections")
        other = Protocol.UDP if protocol is Protocol.TCP else Protocol.TCP
        assert first_line(world, *CLIENT, other.name.lower())[1] == 0
        assert works(world, *CLIENT, other.name.lower(), read_with_retries=True)
        pod = ("caller", cluster_ips(7)[0], name)
        assert first_line(world, *pod)[1] == 0
        assert works(world, *pod, read_with_retries=True)
    finds_nothing(balanced, name)


def test_few_source_ports_are_left(balanced: Cluster) -> None:
    world = balanced.world
    world.run(NODE, ["conntrack", "-F"])
    finds_nothing(balanced, "udp")
    with connections(balanced.world, Protocol.UDP, 63000):
        line, code = first_line(world, *CLIENT, "udp")
        assert line.startswith("arrives: ")
        doubt = line.partition("; as far as is known: ")[2]
        assert re.match(rf"619\d\d of 64512 source ports of {GATEWAY} towards 10.244.1.10:8080/UDP are taken", doubt)
        assert code == 0
        answers = world["outside"].ask(BALANCER, 80, Protocol.UDP, count=MANY, workers=MANY, timeout=SILENCE_SECONDS)
        assert answers.failures
        assert check_line(world).startswith("not healthy: source ports, because ")
    finds_nothing(balanced, "udp")
