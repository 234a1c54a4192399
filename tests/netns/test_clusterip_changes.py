"""What changes on disk is followed within a second, and only new connections notice."""

import os
import time
from collections.abc import Iterable

import pytest

from nodeagent.lab.net.actor_messages import Failure, LoadReport
from nodeagent.lab.net.survey import evenness
from nodeagent.model.addresses import Family, Protocol
from tests.harness.cluster import NODE, UNTHROTTLED, WITH_POD_CIDRS, Cluster, cluster_ips, of_family
from tests.harness.links import Links
from tests.harness.lost_packets import PATIENT, nothing_resent
from tests.harness.objects import service_port
from tests.harness.stopwatch import Change, Stopwatch, allowed
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.topology import SERVICE_CIDRS
from tests.harness.worlds.world import World

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = (Protocol.TCP, Protocol.UDP)

DAEMON_PORT = 9999
SOON = 1.0
"""Seconds from a change on disk to the packets that follow it; a tenth is usual."""
QUIET = 0.3
"""Seconds without a connection to an endpoint, of a load of hundreds a second, that show it is gone."""
PODS = ("web-0", "web-1", "web-2")


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    """An agent without services yet; pods serve on 8080 and 8081, a daemon of the node on every address."""
    cluster.world.write_sysctls(NODE, UNTHROTTLED)
    for pod in PODS:
        for port in (8080, 8081):
            cluster.world[pod].serve(port)
    for protocol in PROTOCOLS:
        cluster.world[NODE].serve(DAEMON_PORT, protocol, addresses=("0.0.0.0", "::"), name="daemon")
    return cluster.start_agent(*WITH_POD_CIDRS, "--service-cidr", ",".join(SERVICE_CIDRS), "--log-level", "debug")


def changing(agent: AgentProcess, world: World) -> Change:
    """To be called right before a change on disk."""
    return Change(agent, [agent.pid, os.getpid(), *world.actors])


def servers(cluster: Cluster, addresses: tuple[str, str], port: int = 80) -> set[str]:
    """Who answers in both families, as ``web-0:8080``; failures by their kind."""
    return {
        answer.failure.value if answer.failure else f"{answer.name}:{answer.local_port}"
        for address in addresses
        for answer in cluster.world["caller"].ask(address, port, count=10, workers=10, timeout=0.1)
    }


def on_interface(cluster: Cluster, addresses: tuple[str, str]) -> bool:
    """Whether the service interface carries any of these addresses."""
    return not Links(cluster.world, NODE).addresses("nodeagent0").isdisjoint(addresses)


def test_a_service_comes_changes_and_goes(cluster: Cluster, agent: AgentProcess) -> None:
    addresses, later = cluster_ips(1), cluster_ips(2)
    assert servers(cluster, addresses) == {"timeout"}

    change = changing(agent, cluster.world)
    cluster.expose("shop", *addresses, pods=["web-0"])
    change.shows(lambda: servers(cluster, addresses) == {"web-0:8080"}, "a new service")
    change.shows(lambda: on_interface(cluster, addresses), "its address")

    change = changing(agent, cluster.world)
    cluster.expose("shop", *addresses, pods=["web-0", "web-1"])
    change.shows(lambda: servers(cluster, addresses) == {"web-0:8080", "web-1:8080"}, "one more endpoint")

    change = changing(agent, cluster.world)
    cluster.expose("shop", *addresses, pods=["web-1"])
    change.shows(lambda: servers(cluster, addresses) == {"web-1:8080"}, "one endpoint less")

    change = changing(agent, cluster.world)
    cluster.expose("shop", *addresses, pods=["web-1"], target_port=8081)
    change.shows(lambda: servers(cluster, addresses) == {"web-1:8081"}, "another target port")

    change = changing(agent, cluster.world)
    cluster.expose("shop", *addresses, pods=["web-1"], ports=[service_port(8000, name="http")], target_port=8081)
    change.shows(lambda: servers(cluster, addresses, port=8000) == {"web-1:8081"}, "another service port")
    assert servers(cluster, addresses) == {"refused"}

    change = changing(agent, cluster.world)
    cluster.expose("shop", *later, pods=["web-1"])
    change.shows(lambda: servers(cluster, later) == {"web-1:8080"}, "another ClusterIP")
    change.shows(lambda: on_interface(cluster, later), "its address")
    assert servers(cluster, addresses) == {"timeout"}
    assert not on_interface(cluster, addresses)

    change = changing(agent, cluster.world)
    service = cluster.expose("shop", *later)
    change.shows(lambda: servers(cluster, later) == {"refused"}, "no endpoints any more")

    change = changing(agent, cluster.world)
    cluster.withdraw(service)
    change.shows(lambda: servers(cluster, later) == {"timeout"}, "the service gone")
    assert not on_interface(cluster, later)


@FAMILIES
@pytest.mark.parametrize("client", ["caller", "outside", NODE])
def test_a_deleted_service_is_dropped(cluster: Cluster, agent: AgentProcess, client: str, family: Family) -> None:
    addresses, member = cluster_ips(3), cluster.world[client]
    address = of_family(family, addresses)
    service = cluster.expose("brief", *addresses, pods=["web-0"])
    agent.wait_until(lambda: member.ask(address, 80, timeout=0.1).names == {"web-0": 1}, "the service")

    change = changing(agent, cluster.world)
    cluster.withdraw(service)
    change.shows(lambda: member.ask(address, 80, timeout=0.1).only.failure is Failure.TIMEOUT, "the service gone")

    assert not on_interface(cluster, addresses)
    assert member.ping(address, timeout=0.2).failures.total() == 1


def test_a_name_given_to_another_service_takes_its_address_over(cluster: Cluster, agent: AgentProcess) -> None:
    """In one change: the address is never without a service."""
    addresses = cluster_ips(4)
    cluster.expose("old", *addresses, pods=["web-0"])
    agent.wait_until(lambda: servers(cluster, addresses) == {"web-0:8080"}, "the old service")

    change = changing(agent, cluster.world)
    old = cluster.expose("new", *addresses, pods=["web-1"])
    cluster.withdraw(cluster.expose("old", *addresses, pods=["web-0"]))
    change.shows(lambda: servers(cluster, addresses) == {"web-1:8080"}, "the new service")
    cluster.withdraw(old)


@FAMILIES
@pytest.mark.parametrize("client", ["caller", "outside", NODE])
def test_open_connections_outlive_their_endpoints_place_in_the_service(
    cluster: Cluster, agent: AgentProcess, client: str, family: Family
) -> None:
    addresses, member = cluster_ips(5), cluster.world[client]
    address = of_family(family, addresses)
    service = cluster.expose("shrinking", *addresses, pods=PODS)
    agent.wait_until(lambda: set(member.ask(address, 80, count=30, timeout=0.2).names) == set(PODS), "all pods")

    with member.hold(address, 80, count=30) as held, member.load(address, 80, interval=0.002, timeout=PATIENT) as load:
        before = [answer.name for answer in held.opened]
        assert set(before) == set(PODS)
        changed, watch = time.monotonic(), Stopwatch([agent.pid, *cluster.world.actors])
        cluster.expose("shrinking", *addresses, pods=PODS[:1])
        agent.wait_until(lambda: silence(load.report(), PODS[1:], changed) > QUIET, "no connections to the others")
        report = load.stop()

        assert [answer.name for answer in held.ask()] == before
    assert not report.failures
    assert max(report.last.get(pod, 0.0) for pod in PODS[1:]) < changed + allowed(SOON) + watch.stood
    assert member.ask(address, 80, count=50).names == {"web-0": 50}
    cluster.withdraw(service)


def silence(report: LoadReport, servers: Iterable[str], since: float) -> float:
    """Seconds of load, from the moment `since` on, after the last connection to one of these servers."""
    return max(report.last.values(), default=0.0) - max(since, *(report.last.get(server, 0.0) for server in servers))


def test_under_constant_change_no_connection_fails(cluster: Cluster, agent: AgentProcess) -> None:
    """Endpoints come and go twenty times, and share evenly in the end."""
    addresses, caller = cluster_ips(6), cluster.world["caller"]
    service = cluster.expose("busy", *addresses, pods=PODS)
    agent.wait_until(lambda: set(caller.ask(addresses[0], 80, count=30, timeout=0.2).names) == set(PODS), "all pods")

    with (
        caller.load(addresses[0], 80, interval=0.001, timeout=PATIENT) as load,
        nothing_resent(cluster.world, ["caller"]),
    ):
        for round_number in range(20):
            printed = len(agent.lines)
            cluster.expose("busy", *addresses, pods=PODS[: 1 + round_number % 3])
            agent.wait_for_line("pass done", after=printed)
        report = load.stop()
    cluster.expose("busy", *addresses, pods=PODS)
    agent.wait_until(lambda: set(caller.ask(addresses[0], 80, count=30, timeout=0.2).names) == set(PODS), "all pods")

    assert not report.failures
    assert evenness(caller.ask(addresses[0], 80, count=300).names, PODS) > 1e-8
    cluster.withdraw(service)


@FAMILIES
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_the_hosts_daemon_never_answers_while_services_come_and_go(
    cluster: Cluster, agent: AgentProcess, protocol: Protocol, family: Family
) -> None:
    """The address is put on the interface after the rules that guard it, and taken away before they go."""
    addresses = cluster_ips(7)
    address = of_family(family, addresses)
    clients = [cluster.world[client] for client in ("caller", "outside", NODE)]
    loads = [client.load(address, DAEMON_PORT, protocol, interval=0.001, timeout=0.02) for client in clients]

    for _ in range(5):
        service = cluster.expose("flickering", *addresses, pods=["web-0"])
        agent.wait_until(lambda: on_interface(cluster, addresses), "the address")
        cluster.withdraw(service)
        agent.wait_until(lambda: not on_interface(cluster, addresses), "no address")

    for report in [load.stop() for load in loads]:
        assert report.attempts > 20
        assert not report.names
