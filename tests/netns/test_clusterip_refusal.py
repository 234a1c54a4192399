"""What a ClusterIP does not serve: refused at once or dropped, never handed to the host's own daemons."""

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, UNTHROTTLED, WITH_POD_CIDRS, Cluster, cluster_ips, of_family
from tests.harness.objects import service_port
from tests.harness.sniffing import Sniffing
from tests.harness.stopwatch import once_within
from tests.harness.worlds.topology import SERVICE_CIDRS

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", Protocol, ids=lambda protocol: protocol.name)
CLIENTS = pytest.mark.parametrize(
    "client",
    [
        pytest.param("caller", id="pod"),
        pytest.param(NODE, id="node"),
        pytest.param("outside", id="outside"),
    ],
)

PORTS = tuple(service_port(80, protocol, name=protocol.name.lower()) for protocol in Protocol)
SERVED, EMPTY, ELSEWHERE, TCP_ONLY = cluster_ips(1), cluster_ips(0x1002), cluster_ips(3), cluster_ips(0x1004)
"""By IPv6 two are local, and two are reached by the route of their range."""
NOBODYS = cluster_ips(77)
DAEMON_PORT = 9999
AT_ONCE = 0.2
"""Seconds: a refusal takes a tenth of a millisecond, one that came as an answer to a second packet more than a second."""
PATIENCE = 0.25
"""Seconds after which a packet counts as dropped."""


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    """One healthy service, one without endpoints, one whose endpoints are elsewhere only; daemons on the node."""
    world = cluster.world
    world.write_sysctls(NODE, UNTHROTTLED)
    for protocol in Protocol:
        world["web-0"].serve(8080, protocol)
        for port in (80, DAEMON_PORT):
            world[NODE].serve(port, protocol, addresses=("0.0.0.0", "::"), name="daemon")
    cluster.expose("served", *SERVED, pods=["web-0"], ports=PORTS)
    cluster.expose("empty", *EMPTY, ports=PORTS)
    local = ServiceSpec(internal_traffic_policy="Local")
    cluster.expose("elsewhere", *ELSEWHERE, pods=["far-0"], ports=PORTS, spec=local)
    cluster.expose("tcp-only", *TCP_ONLY, pods=["web-0"], ports=PORTS[:1])
    cluster.start_agent(*WITH_POD_CIDRS, "--service-cidr", ",".join(SERVICE_CIDRS))
    return cluster


def refusals(client: str, protocol: Protocol) -> set[Failure]:
    """How a refusal looks: a node's own datagram does not even get out (EPERM), the rest is known by an answer."""
    return {Failure.DENIED, Failure.REFUSED} if client == NODE and protocol is not Protocol.TCP else {Failure.REFUSED}


def refused_at_once(served: Cluster, client: str, address: str, port: int, protocol: Protocol) -> None:
    def attempt() -> float:
        answer = served.world[client].ask(address, port, protocol).only
        assert answer.failure in refusals(client, protocol)
        return answer.seconds

    once_within(AT_ONCE, attempt, "a refusal")


@PROTOCOLS
@FAMILIES
@CLIENTS
@pytest.mark.parametrize(
    ("addresses", "port"),
    [
        pytest.param(EMPTY, 80, id="no endpoints"),
        pytest.param(SERVED, 81, id="undefined port"),
        pytest.param(EMPTY, 81, id="undefined port, no endpoints"),
        pytest.param(SERVED, DAEMON_PORT, id="undefined port on which a daemon of the node listens"),
    ],
)
def test_services_and_ports_without_endpoints_refuse_at_once(
    served: Cluster, addresses: tuple[str, str], port: int, client: str, family: Family, protocol: Protocol
) -> None:
    refused_at_once(served, client, of_family(family, addresses), port, protocol)


@FAMILIES
@CLIENTS
@pytest.mark.parametrize("protocol", [Protocol.UDP, Protocol.SCTP], ids=lambda protocol: protocol.name)
def test_another_protocol_on_a_defined_port_is_an_undefined_port(
    served: Cluster, client: str, family: Family, protocol: Protocol
) -> None:
    assert served.world[client].ask(of_family(family, TCP_ONLY), 80).names == {"web-0": 1}
    refused_at_once(served, client, of_family(family, TCP_ONLY), 80, protocol)


@FAMILIES
@CLIENTS
def test_many_refusals_in_a_row_are_as_fast(served: Cluster, client: str, family: Family) -> None:
    def slowest() -> float:
        survey = served.world[client].ask(of_family(family, EMPTY), 80, count=100)
        assert survey.failures == {Failure.REFUSED: 100}
        return survey.slowest

    once_within(AT_ONCE, slowest, "the slowest of a hundred refusals")


@PROTOCOLS
@FAMILIES
@CLIENTS
@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param(ELSEWHERE, id="internalTrafficPolicy Local, endpoints elsewhere"),
        pytest.param(NOBODYS, id="unallocated"),
    ],
)
def test_connections_that_must_wait_are_dropped(
    served: Cluster, addresses: tuple[str, str], client: str, family: Family, protocol: Protocol
) -> None:
    answer = served.world[client].ask(of_family(family, addresses), 80, protocol, timeout=PATIENCE).only

    if client == NODE and protocol is not Protocol.TCP:
        assert answer.failure is Failure.DENIED
    else:
        assert answer.failure is Failure.TIMEOUT


@PROTOCOLS
@FAMILIES
@CLIENTS
def test_a_daemon_of_the_host_does_not_answer_for_a_service(
    served: Cluster, client: str, family: Family, protocol: Protocol
) -> None:
    """It listens on the service's port and on all addresses, the ClusterIP being one of them."""
    gateway = of_family(family, served.world.topology.nodes[0].pod_gateways)
    near = gateway if client == "caller" else served.world[NODE].address(family)

    assert served.world[client].ask(of_family(family, SERVED), 80, protocol, count=10).names == {"web-0": 10}
    assert served.world[client].ask(near, 80, protocol).names == {"daemon": 1}


@FAMILIES
@CLIENTS
@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param(SERVED, id="with endpoints"),
        pytest.param(EMPTY, id="without endpoints"),
        pytest.param(ELSEWHERE, id="with endpoints elsewhere"),
    ],
)
def test_a_cluster_ip_answers_ping(served: Cluster, addresses: tuple[str, str], client: str, family: Family) -> None:
    address = of_family(family, addresses)

    assert [answer.local for answer in served.world[client].ping(address, count=2)] == [address] * 2


@FAMILIES
@CLIENTS
def test_an_unallocated_address_does_not_answer_ping(served: Cluster, client: str, family: Family) -> None:
    answer = served.world[client].ping(of_family(family, NOBODYS), timeout=PATIENCE).only

    assert answer.failure in ({Failure.DENIED, Failure.TIMEOUT} if client == NODE else {Failure.TIMEOUT})


@FAMILIES
def test_the_node_is_answered_by_the_cluster_ip_on_its_own_interface(served: Cluster, family: Family) -> None:
    """Which is how a person sees that the address is one of this node."""
    address = of_family(family, SERVED)
    with Sniffing(served.world[NODE], "lo") as sniffing:
        assert not served.world[NODE].ping(address).failures
        packets = sniffing.stop()

    asked = {packet.source for packet in packets if packet.destination == address}
    assert asked == {served.world[NODE].address(family)}
    assert {packet.source for packet in packets if packet.destination in asked} >= {address}
