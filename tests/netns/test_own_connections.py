"""The node's own connections to ClusterIPs have an address of the node as their source, and go on whatever becomes of the Service."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import LABEL_PROXY_NAME, Service
from tests.harness.cluster import HTTP, NODE, TARGET_PORT, Cluster, cluster_ips, of_family
from tests.harness.objects import make_node, make_service, service_port
from tests.harness.sniffing import Packet, Sniffing
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.topology import SERVICE_CIDRS
from tests.harness.worlds.world import World

pytestmark = pytest.mark.slow

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PORTS = (*HTTP, service_port(80, Protocol.UDP, name="datagrams"))
LATER = cluster_ips(3)
SECOND = ("192.168.7.7", "2001:db8:7::7")
"""Addresses that the node may get besides."""
LENGTH = {Family.IPV4: 32, Family.IPV6: 128}
NODAD = {Family.IPV4: "", Family.IPV6: "nodad"}
FILLERS = 255
"""With one more ClusterIP by IPv4 all are addresses of the interface; what comes then is a route."""
PLUG = make_service("plug", *cluster_ips(1000))


class Place(NamedTuple):
    """Where the ClusterIPs of a Service are. By IPv6 one of a high number is in the range that all share."""

    addresses: tuple[str, str]
    plugged: bool


PLACES = pytest.mark.parametrize(
    "place",
    [pytest.param(Place(cluster_ips(1), False), id="address"), pytest.param(Place(cluster_ips(300), True), id="route")],
)
SERVERS = pytest.mark.parametrize("server", ["web-0", "far-0"])


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    """An agent that cannot tell pods, so that sources are seen as they are, with more ClusterIPs than are addresses."""
    for protocol in (Protocol.TCP, Protocol.UDP):
        for pod in ("web-0", "far-0"):
            cluster.world[pod].serve(TARGET_PORT, protocol)
    cluster.manifests.put(*(make_service(f"filler-{number}", *cluster_ips(2000 + number)) for number in range(FILLERS)))
    return cluster.start_agent("--service-cidr", ",".join(SERVICE_CIDRS))


@pytest.fixture
def service(cluster: Cluster, agent: AgentProcess, place: Place, server: str) -> Iterator[Service]:
    """One that the interface carries there."""
    if place.plugged:
        cluster.manifests.put(PLUG)
        agent.wait_until(lambda: carried(cluster, PLUG) == "address", "the plug")
    service = cluster.expose("short-lived", *place.addresses, pods=[server], ports=PORTS)
    agent.wait_until(lambda: carried(cluster, service) != "", "the ClusterIP on the interface")
    assert carried(cluster, service) == ("route" if place.plugged else "address")
    yield service
    cluster.withdraw(service)
    if place.plugged:
        cluster.manifests.remove(PLUG)
    agent.wait_until(lambda: not carried(cluster, service) and not carried(cluster, PLUG), "its end")


def carried(cluster: Cluster, service: Service) -> str:
    """As what the interface has the IPv4 ClusterIP; empty: not at all."""
    assert service.spec.cluster_ip
    routes = cluster.world.run(NODE, ["ip", "route", "show", "table", "local", service.spec.cluster_ip]).stdout
    if "dev nodeagent0" not in routes:
        return ""
    return "address" if "dev nodeagent0 proto kernel" in routes else "route"


def deleted(cluster: Cluster, service: Service) -> None:
    cluster.withdraw(service)


def headless(cluster: Cluster, service: Service) -> None:
    cluster.manifests.put(replace(service, spec=replace(service.spec, cluster_ip="None", cluster_ips=("None",))))


def moved(cluster: Cluster, service: Service) -> None:
    cluster.manifests.put(replace(service, spec=replace(service.spec, cluster_ip=LATER[0], cluster_ips=LATER)))


def given_away(cluster: Cluster, service: Service) -> None:
    cluster.manifests.put(replace(service, metadata=replace(service.metadata, labels={LABEL_PROXY_NAME: "another"})))


def chosen_source(world: World, address: str, kind: socket.SocketKind = socket.SOCK_DGRAM) -> str:
    """With which address a program of the node connects that leaves it to the kernel; empty where it cannot, as for a moment after that
    address went."""

    def connect() -> str:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, kind) as connected, suppress(OSError):
            connected.connect((address, 80))
            return str(connected.getsockname()[0])
        return ""

    return inside(world.namespace(NODE), connect)


@FAMILIES
@PLACES
@SERVERS
@pytest.mark.parametrize("deed", [deleted, headless, moved, given_away])
def test_open_connections_of_the_node_go_on(
    cluster: Cluster,
    agent: AgentProcess,
    service: Service,
    place: Place,
    server: str,
    deed: Callable[[Cluster, Service], None],
    family: Family,
) -> None:
    node, address = cluster.world[NODE], of_family(family, place.addresses)
    held = node.hold(address, 80, count=3)
    assert held.opened.names == {server: 3}

    deed(cluster, service)
    agent.wait_until(lambda: not carried(cluster, service), "the ClusterIP gone")

    sniffing = Sniffing(node, "eth0")
    assert held.ask().names == {server: 3}
    held.stop()
    assert not leaked(sniffing, address)


@FAMILIES
@PLACES
@SERVERS
@pytest.mark.parametrize("deed", [deleted, given_away])
def test_of_datagrams_nothing_leaks(
    cluster: Cluster,
    agent: AgentProcess,
    service: Service,
    place: Place,
    deed: Callable[[Cluster, Service], None],
    family: Family,
) -> None:
    """Their flows are ended with the Service, as kube-proxy does it; a sender that goes on gets an error at once."""
    node, address = cluster.world[NODE], of_family(family, place.addresses)
    held = node.hold(address, 80, Protocol.UDP, timeout=0.2)
    assert held.opened.peers == {node.address(family)}

    deed(cluster, service)
    agent.wait_until(lambda: not carried(cluster, service), "the ClusterIP gone")

    sniffing = Sniffing(node, "eth0")
    agent.wait_until(lambda: held.ask().failures == {Failure.DENIED: 1}, "the end of the flow")
    held.stop()
    assert not leaked(sniffing, address)


@FAMILIES
@PLACES
@SERVERS
def test_a_program_that_chooses_no_source_gets_the_nodes_address(
    cluster: Cluster, service: Service, place: Place, server: str, family: Family
) -> None:
    node, address = cluster.world[NODE], of_family(family, place.addresses)
    assert chosen_source(cluster.world, address) == node.address(family)
    for protocol in (Protocol.TCP, Protocol.UDP):
        survey = node.ask(address, 80, protocol)
        assert (survey.names, survey.peers) == ({server: 1}, {node.address(family)})


@FAMILIES
@PLACES
@pytest.mark.parametrize("server", ["web-0"])
def test_a_program_that_chose_an_address_of_the_node_keeps_it_where_pods_are_unknown(
    cluster: Cluster, service: Service, place: Place, family: Family
) -> None:
    node, own = cluster.world[NODE], of_family(family, SECOND)
    with shell(
        cluster.world,
        f"ip addr add {own}/{LENGTH[family]} dev eth0 {NODAD[family]}",
        f"ip addr del {own}/{LENGTH[family]} dev eth0",
    ):
        survey = node.ask(of_family(family, place.addresses), 80, source_address=own)
        assert survey.peers == {own}


@FAMILIES
@PLACES
@pytest.mark.parametrize("server", ["far-0"])
def test_a_routing_rule_for_the_nodes_address_holds_for_programs_that_choose_none(
    cluster: Cluster, service: Service, place: Place, family: Family
) -> None:
    """By the table `main` nobody is reached."""
    node, six = cluster.world[NODE], "-6" if family is Family.IPV6 else "-4"
    pod, own = cluster.world["far-0"].address(family), node.address(family)
    way = cluster.world.run(NODE, ["ip", six, "route", "get", pod, "from", own]).stdout.split(" via ")[1].split()[0]
    begin = (
        f"ip {six} route add {way} dev eth0 table 77; ip {six} route add {pod} via {way} dev eth0 table 77;"
        f"ip {six} rule add from {own} table 77; ip {six} route add unreachable {pod} metric 1"
    )
    end = f"ip {six} route del unreachable {pod} metric 1; ip {six} rule del from {own}; ip {six} route flush table 77"
    with shell(cluster.world, begin, end):
        assert node.ask(of_family(family, place.addresses), 80).names == {"far-0": 1}


@FAMILIES
@PLACES
@pytest.mark.parametrize("server", ["web-0"])
def test_the_source_follows_the_nodes_address(
    cluster: Cluster, agent: AgentProcess, service: Service, place: Place, family: Family
) -> None:
    """The Node's, as soon as the node has it; until then, and after it, the one by which it reaches others."""
    world, address, own = cluster.world, of_family(family, place.addresses), of_family(family, SECOND)
    first = world[NODE].address(family)
    cluster.manifests.put(make_node(NODE, SECOND))
    try:
        for _ in range(2):
            assert chosen_source(world, address) == first
            add, delete = (f"ip addr {verb} {own}/{LENGTH[family]} dev eth0" for verb in ("add", "del"))
            with shell(world, f"{add} {NODAD[family]}", delete):
                agent.wait_until(lambda: chosen_source(world, address) == own, "the Node's address")
                assert world[NODE].ask(address, 80).peers == {own}
                shell_once(world, f"{delete}; {add} {NODAD[family]}")
                agent.wait_until(lambda: chosen_source(world, address) == own, "the same address again")
            agent.wait_until(lambda: chosen_source(world, address) == first, "the other address")
    finally:
        cluster.manifests.put(make_node(NODE, world[NODE].addresses))


@FAMILIES
@PLACES
@SERVERS
def test_where_the_node_has_no_address_to_prefer_answers_come_nevertheless(
    cluster: Cluster, agent: AgentProcess, service: Service, place: Place, server: str, family: Family
) -> None:
    """By IPv4 the ClusterIP is the source then, and is rewritten; by IPv6 the kernel chooses that of the bridge."""
    world, address, six = cluster.world, of_family(family, place.addresses), "-6" if family is Family.IPV6 else "-4"
    default = world.run(NODE, ["ip", six, "route", "show", "default"]).stdout.split(" metric ")[0].strip()
    kept = "10.244.0.0/16" if family is Family.IPV4 else "fd00:244::/32"
    begin = f"ip {six} route add {kept} {default.removeprefix('default ')}; ip {six} route del {default}"
    end = f"ip {six} route add {default}; ip {six} route del {kept}"
    own = world[NODE].address(family)
    assert chosen_source(world, address) == own
    cluster.manifests.put(make_node(NODE, SECOND))
    try:
        with shell(world, begin, end):
            agent.wait_until(lambda: chosen_source(world, address) not in (own, ""), "no source to prefer")
            survey = world[NODE].ask(address, 80)
            assert (survey.names, survey.failures) == ({server: 1}, {})
            assert address not in survey.peers
    finally:
        cluster.manifests.put(make_node(NODE, world[NODE].addresses))
        agent.wait_until(lambda: chosen_source(world, address) == own, "the address again")


@contextmanager
def shell(world: World, begin: str, end: str) -> Iterator[None]:
    shell_once(world, begin)
    try:
        yield
    finally:
        shell_once(world, end)


def shell_once(world: World, script: str) -> None:
    world.run(NODE, ["sh", "-ec", script])


def leaked(sniffing: Sniffing, address: str) -> list[Packet]:
    """Packets with the ClusterIP that left the node or came to it."""
    return [packet for packet in sniffing.stop() if address in (packet.source, packet.destination)]
