"""Client affinity: a client stays with its endpoint while the endpoint serves, whatever else happens."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.lab.net.actor_messages import LoadReport
from nodeagent.lab.net.prefixes import host_prefix
from nodeagent.lab.net.survey import Survey
from nodeagent.lab.net.topology import UNDERLAY
from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.model.objects import ClientIPConfig, Service, ServiceSpec, SessionAffinityConfig
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, cluster_ips
from tests.harness.nft import Nft
from tests.harness.objects import make_service, service_port
from tests.harness.serving_node import ServingNode

pytestmark = pytest.mark.slow

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", Protocol, ids=lambda protocol: protocol.name)

PODS = ("web-0", "web-1", "web-2", "far-0")
NODE_ADDRESSES = ("192.168.0.2", "2001:db8::2")
VIPS = ("198.51.100.1", "2001:db8:100::1")
NODE_PORT = 30080
CROWD = 40
"""So many clients that all of them choosing alike, among two endpoints or more, does not happen (2^-40)."""

TABLES = {Family.IPV4: "ip", Family.IPV6: "ip6"}


def sticky(name: str, number: int, *, seconds: int = 600) -> Service:
    """A service with affinity; its ports `http` and `other` differ in number, `dns` is UDP, `calls` SCTP."""
    ports = (
        service_port(80, name="http", node_port=NODE_PORT + number),
        service_port(81, name="other"),
        service_port(80, Protocol.UDP, name="dns", node_port=NODE_PORT + number),
        service_port(80, Protocol.SCTP, name="calls", node_port=NODE_PORT + number),
    )
    config = SessionAffinityConfig(ClientIPConfig(seconds))
    spec = ServiceSpec(session_affinity="ClientIP", session_affinity_config=config)
    vips = (f"198.51.100.{number}", f"2001:db8:100::{number}")
    return make_service(name, *cluster_ips(number), ports=ports, load_balancer_ips=vips, spec=spec)


@pytest.fixture(scope="module")
def running(served: ServingNode) -> ServingNode:
    for pod in PODS:
        served.world[pod].serve(TARGET_PORT, Protocol.SCTP)
    served.run_agent(*WITH_POD_CIDRS)
    return served


@pytest.fixture(scope="module")
def crowd(running: ServingNode) -> dict[Family, list[str]]:
    """Addresses of many clients, all on host `outside`."""
    addresses = {
        Family.IPV4: [f"203.0.113.{100 + number}" for number in range(CROWD)],
        Family.IPV6: [f"2001:db8:ffff::1:{number:x}" for number in range(CROWD)],
    }
    for family, listed in addresses.items():
        lines = "\n".join(f"address add {host_prefix(a)} dev eth0" for a in listed)
        running.world.run("outside", ["ip", "-batch", "-"], stdin=lines)
        routes = "\n".join(f"route add {host_prefix(a)} dev outside" for a in listed)
        running.world.run(UNDERLAY, ["ip", *(["-6"] if family is Family.IPV6 else []), "-batch", "-"], stdin=routes)
    return addresses


def of(family: Family, addresses: Sequence[str]) -> str:
    return next(address for address in addresses if family_of(address) is family)


def endpoint_of(survey: Survey) -> str:
    """The one endpoint that answered every question."""
    assert not survey.failures
    (name,) = survey.names
    return name


def endpoints_of_crowd(
    running: ServingNode, clients: Sequence[str], address: str, port: int = 80, protocol: Protocol = Protocol.TCP
) -> dict[str, str]:
    """Client → the endpoint it gets."""
    outside = running.world["outside"]
    return {c: endpoint_of(outside.ask(address, port, protocol, source_address=c)) for c in clients}


def remembered(running: ServingNode, family: Family) -> list[tuple[str, str, int]]:
    """(client, endpoint's address, seconds until it is forgotten) of all entries in the kernel."""
    nft = Nft(running.world.namespace(NODE))
    return [entry(*element) for element in nft.elements(TABLES[family], "nodeagent", "affinity")]


def entry(key: Any, value: Any) -> tuple[str, str, int]:
    held = key.get("elem", {})
    fields = held.get("val", key)["concat"]
    return fields[0], value["concat"][0], held.get("expires", 0)


@pytest.fixture
def web(running: ServingNode) -> Iterator[Service]:
    """A sticky service with all pods. When it is gone, nobody's endpoint is remembered any more."""
    service = sticky("web", 1)
    running.expose(service, *PODS)
    yield service
    running.remove(service, *running.slices(service))
    for family in Family:
        running.agent.wait_until(lambda family=family: not remembered(running, family), "an empty memory")  # type: ignore[misc]


def restart(running: ServingNode) -> None:
    seen = len(running.agent.lines)
    running.agent.restart()
    running.agent.wait_for_line(" ready: ", after=seen)


@pytest.mark.parametrize(
    ("family", "protocol"),
    [
        pytest.param(Family.IPV4, Protocol.TCP, id="IPv4 TCP"),
        pytest.param(Family.IPV6, Protocol.TCP, id="IPv6 TCP"),
        pytest.param(Family.IPV4, Protocol.UDP, id="IPv4 UDP"),
    ],
)
def test_a_thousand_connections_stay_while_endpoints_come_and_go_and_the_agent_restarts(
    running: ServingNode, web: Service, family: Family, protocol: Protocol
) -> None:
    with running.world["caller"].load(of(family, cluster_ips(1)), 80, protocol, interval=0.001) as load:

        def connections(more: int) -> None:
            goal = load.report().attempts + more
            deadline = time.monotonic() + 60
            while load.report().attempts < goal:
                assert time.monotonic() < deadline, f"{more} more connections"
                time.sleep(0.01)

        connections(1)
        (mine,) = load.report().names
        others = [pod for pod in PODS if pod != mine]
        for pods in ([mine], [mine, *others], [*others[1:], mine], [*others, mine]):
            running.expose(web, *pods)
            connections(100)
        restart(running)
        connections(100)
        running.agent.kill()
        running.cluster.manifests.put(*running.slices(web, mine, others[0]))
        connections(100)
        restart(running)
        running.settle()
        connections(1000 - load.report().attempts)
        report = load.stop()

    assert not report.failures, report.failed
    assert set(report.names) == {mine}


@PROTOCOLS
@FAMILIES
def test_all_addresses_of_a_service_port_share_what_they_remember(
    running: ServingNode, web: Service, crowd: dict[Family, list[str]], family: Family, protocol: Protocol
) -> None:
    clients = crowd[family]
    first = endpoints_of_crowd(running, clients, of(family, VIPS), protocol=protocol)

    assert set(first.values()) == set(PODS)
    for where in ((of(family, NODE_ADDRESSES), NODE_PORT + 1), (of(family, cluster_ips(1)), 80)):
        assert endpoints_of_crowd(running, clients, *where, protocol) == first, where


@FAMILIES
def test_another_port_and_another_protocol_remember_for_themselves(
    running: ServingNode, web: Service, crowd: dict[Family, list[str]], family: Family
) -> None:
    vip = of(family, VIPS)
    chosen = [
        endpoints_of_crowd(running, crowd[family], vip, port, protocol)
        for port, protocol in ((80, Protocol.TCP), (81, Protocol.TCP), (80, Protocol.UDP))
    ]

    assert chosen[0] != chosen[1] != chosen[2] != chosen[0]
    assert endpoints_of_crowd(running, crowd[family], vip, 81) == chosen[1]


@FAMILIES
def test_clients_of_an_endpoint_that_leaves_move_with_their_next_connection_and_do_not_come_back(
    running: ServingNode, web: Service, crowd: dict[Family, list[str]], family: Family
) -> None:
    vip, outside = of(family, VIPS), running.world["outside"]
    before = endpoints_of_crowd(running, crowd[family], vip)
    leaving = before[crowd[family][0]]
    address = running.world[leaving].address(family)
    with outside.hold(vip, 80, source_address=crowd[family][0]) as open_connection:
        assert endpoint_of(open_connection.opened) == leaving

        running.expose(web, *(pod for pod in PODS if pod != leaving))
        running.agent.wait_until(
            lambda: address not in {endpoint for _, endpoint, _ in remembered(running, family)}, "a purge"
        )
        after = endpoints_of_crowd(running, crowd[family], vip)

        assert endpoint_of(open_connection.ask()) == leaving, "established connections go on"
    assert leaving not in after.values()
    assert {c: pod for c, pod in after.items() if before[c] != leaving} == {
        c: pod for c, pod in before.items() if pod != leaving
    }

    running.expose(web, *PODS)
    assert endpoints_of_crowd(running, crowd[family], vip) == after


def test_a_client_that_stays_away_longer_than_the_timeout_is_forgotten(
    running: ServingNode, web: Service, crowd: dict[Family, list[str]]
) -> None:
    running.apply(sticky("web", 1, seconds=1))
    before = {family: endpoints_of_crowd(running, crowd[family], of(family, VIPS)) for family in Family}
    running.agent.wait_until(lambda: not any(remembered(running, family) for family in Family), "an empty memory")

    for family in Family:
        assert endpoints_of_crowd(running, crowd[family], of(family, VIPS)) != before[family]


def test_every_new_connection_renews_the_timeout(running: ServingNode, web: Service) -> None:
    running.apply(sticky("web", 1, seconds=1))
    ipv4, ipv6 = cluster_ips(1)
    caller = running.world["caller"]
    with caller.load(ipv4, 80, interval=0.01) as load, caller.load(ipv6, 80, interval=0.01) as load6:
        for each in (load, load6):
            running.agent.wait_until(
                lambda each=each: lasted(each.report()) > 2.5,  # type: ignore[misc]
                "connections for two and a half seconds",
            )
        reports = load.stop(), load6.stop()

    for report in reports:
        assert not report.failures
        assert len(report.names) == 1


def lasted(report: LoadReport) -> float:
    """Seconds between the first and the last answered connection."""
    return max(report.last.values(), default=0.0) - min(report.first.values(), default=0.0)


@FAMILIES
def test_a_changed_timeout_holds_for_the_next_connection_of_every_client(
    running: ServingNode, web: Service, crowd: dict[Family, list[str]], family: Family
) -> None:
    vip = of(family, VIPS)
    before = endpoints_of_crowd(running, crowd[family], vip)
    assert {0 < seconds <= 600 for _, _, seconds in remembered(running, family)} == {True}

    running.apply(sticky("web", 1, seconds=1234))

    assert endpoints_of_crowd(running, crowd[family], vip) == before
    assert {1000 < seconds <= 1234 for _, _, seconds in remembered(running, family)} == {True}


@FAMILIES
def test_without_affinity_nobody_is_remembered_and_switching_it_on_starts_afresh(
    running: ServingNode, web: Service, crowd: dict[Family, list[str]], family: Family
) -> None:
    vip = of(family, VIPS)
    before = endpoints_of_crowd(running, crowd[family], vip)
    running.apply(replace(web, spec=replace(web.spec, session_affinity="None")))
    running.agent.wait_until(lambda: not remembered(running, family), "an empty memory")
    free = endpoints_of_crowd(running, crowd[family], vip)
    assert free != endpoints_of_crowd(running, crowd[family], vip)

    running.apply(web)
    fresh = endpoints_of_crowd(running, crowd[family], vip)
    assert fresh != before
    assert endpoints_of_crowd(running, crowd[family], vip) == fresh
