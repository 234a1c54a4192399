"""Names at the DNS Service's own address: taken over from the servers in pods and given back, and nothing is lost."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import dns.message
import pytest

from nodeagent.lab.net.network_namespaces import inside, is_alive
from nodeagent.model.addresses import Protocol
from tests.harness.cluster import NODE, Cluster, cluster_ips
from tests.harness.dns.lookups import (
    ANSWER_OF_SERVERS,
    ask,
    exchange,
    lookups,
    servers_in,
    until,
    until_all_say,
)
from tests.harness.objects import service_port
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

pytestmark = pytest.mark.slow

DNS = cluster_ips(10)
SHOP, SHOP6 = cluster_ips(820)
NAME = "shop.default.svc.cluster.local."
SERVERS = ("web-0", "web-1")
POD = "caller"
PORTS = (service_port(53, Protocol.UDP, name="dns"), service_port(53, name="dns-tcp"))
OWNERSHIP = pytest.mark.parametrize("ownership", ["plain", "owned"])
CLIENTS_WAIT_SECONDS = 5.0
"""glibc and musl ask again then, or give up."""
UDP, TCP = socket.SOCK_DGRAM, socket.SOCK_STREAM


def flags(*listening: str, ownership: str = "plain") -> tuple[str, ...]:
    return (
        *("--dns", "--dns-listen", ",".join(listening), "--dns-upstreams", "127.0.0.1:9"),
        *("--table-ownership", ownership, "--service-cidr", "10.96.0.0/16,fd00:10:96::/112"),
    )


@pytest.fixture
def named(cluster: Cluster) -> Iterator[Cluster]:
    cluster.expose("shop", SHOP, SHOP6, pods=("web-0",))
    yield cluster
    cluster.kill_agents()
    cluster.call("cleanup")


@pytest.fixture
def served(named: Cluster) -> Iterator[Cluster]:
    """A cluster with DNS servers in two pods."""
    service = named.expose("kube-dns", *DNS, pods=SERVERS, ports=PORTS, target_port=53)
    with servers_in(named, *SERVERS):
        yield named
    named.withdraw(service)


def dns_process(agent: AgentProcess, *, after: int = 0) -> int:
    """The pid of the process that the agent started."""
    found = re.search(r"started a DNS process pid=(\d+)", agent.wait_for_line("started a DNS process", after=after))
    assert found
    return int(found[1])


def from_pod(cluster: Cluster, server: str, kind: socket.SocketKind = UDP) -> str:
    try:
        return inside(cluster.world.namespace(POD), lambda: ask(server, NAME, kind))
    except OSError as error:
        return repr(error)


@OWNERSHIP
def test_no_lookup_is_lost_while_names_are_taken_over_killed_restarted_and_given_back(
    served: Cluster, ownership: str
) -> None:
    agent = served.start_agent("--table-ownership", ownership)
    with lookups(served, [POD, NODE], DNS, NAME) as askers:
        until_all_say(askers, ANSWER_OF_SERVERS)
        agent.stop()

        agent = served.start_agent(*flags(*DNS, ownership=ownership))
        until_all_say(askers, SHOP)
        assert [loss for asker in askers for loss in asker.lost] == []

        process, printed = dns_process(agent), len(agent.lines)
        os.kill(process, signal.SIGKILL)
        dns_process(agent, after=printed)
        until_all_say(askers, SHOP)
        # What the killed process had read is gone with it: at most the one query that each of them had under way.
        assert all(len(asker.lost) <= 1 for asker in askers), [asker.lost for asker in askers]
        for asker in askers:
            asker.lost.clear()

        printed = len(agent.lines)
        agent.stop()
        until_all_say(askers, SHOP)
        agent.restart()
        agent.wait_for_line(" ready: ", after=printed)
        until_all_say(askers, SHOP)
        agent.stop()

        agent = served.start_agent("--table-ownership", ownership)
        agent.wait_for_line("ended the DNS process")
        until_all_say(askers, ANSWER_OF_SERVERS)
    agent.stop()
    assert [loss for asker in askers for loss in asker.lost] == []
    assert all(asker.answers.keys() <= {SHOP, ANSWER_OF_SERVERS} for asker in askers)


@pytest.mark.parametrize("elsewhere", [True, False], ids=["with servers in pods", "alone"])
def test_a_process_that_is_stopped_keeps_nobody_waiting_until_clients_ask_again(
    named: Cluster, elsewhere: bool
) -> None:
    service = named.expose("kube-dns", *DNS, pods=SERVERS if elsewhere else (), ports=PORTS, target_port=53)
    with servers_in(named, *SERVERS):
        agent = named.start_agent(*flags(*DNS))
        process = dns_process(agent)
        with lookups(named, [POD, NODE], DNS, NAME) as askers:
            until_all_say(askers, SHOP)
            for asker in askers:
                asker.longest = 0.0
                asker.lost.clear()
            printed = len(agent.lines)
            os.kill(process, signal.SIGSTOP)
            agent.wait_for_line("it answered no query for 1 s, and was killed", after=printed)
            dns_process(agent, after=printed)
            until_all_say(askers, SHOP)
        agent.stop()
    named.withdraw(service)
    assert not is_alive(process)
    # A connection that the stopped process had accepted ends with it: at most the one that each of them had under way.
    assert all(len(asker.lost) <= 1 for asker in askers), [asker.lost for asker in askers]
    assert max(asker.longest for asker in askers) < CLIENTS_WAIT_SECONDS


def test_lookups_are_lost_when_nobody_answers(named: Cluster) -> None:
    """The control of the test above: what nobody answers, it counts."""
    service = named.expose("kube-dns", *DNS, ports=PORTS)
    agent = named.start_agent()
    with lookups(named, [POD, NODE], DNS, NAME) as askers:
        until(lambda: all(asker.lost for asker in askers), "lost lookups")
    named.withdraw(service)
    agent.stop()


def test_servers_in_pods_answer_when_the_process_is_stopped_and_dies_with_its_agent(served: Cluster) -> None:
    agent = served.start_agent(*flags(*DNS))
    process = dns_process(agent)
    for address in DNS:
        until(lambda address=address: from_pod(served, address) == SHOP, "the node answers")  # type: ignore[misc]
    agent.kill()
    os.kill(process, signal.SIGKILL)
    until(lambda: not is_alive(process), "the process is gone")
    for address in DNS:
        for kind in (UDP, TCP):
            assert from_pod(served, address, kind) == ANSWER_OF_SERVERS


@OWNERSHIP
def test_no_lookup_is_lost_while_the_container_of_the_agent_is_replaced(served: Cluster, ownership: str) -> None:
    """With the first process of a container all others end: names are given back before."""
    container = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child")
    run = (*container, *AGENT, "run", *served.sources(), *flags(*DNS, ownership=ownership))
    agent = served.world.start(NODE, run)
    agent.wait_for_line(" ready: ")
    with lookups(served, [POD, NODE], DNS, NAME) as askers:
        for _ in range(2):
            until_all_say(askers, SHOP)
            (first,) = map(int, Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split())
            os.kill(first, signal.SIGTERM)
            until(lambda: not agent.running, "the container ends")
            until_all_say(askers, ANSWER_OF_SERVERS)
            agent.restart()
        until_all_say(askers, SHOP)
    agent.kill()
    assert [loss for asker in askers for loss in asker.lost] == []


def test_an_open_connection_stays_with_whom_it_began(served: Cluster) -> None:
    query = dns.message.make_query(NAME, "A").to_wire()

    def connect() -> socket.socket:
        return socket.create_connection((DNS[0], 53), timeout=30)

    agent = served.start_agent()
    with inside(served.world.namespace(POD), connect) as before:
        assert exchange(before, query) == ANSWER_OF_SERVERS
        agent.stop()
        agent = served.start_agent(*flags(*DNS))
        until(lambda: from_pod(served, DNS[0], TCP) == SHOP, "the node answers")
        assert exchange(before, query) == ANSWER_OF_SERVERS
    agent.stop()


def test_datagrams_are_not_tracked_so_that_two_at_once_cannot_collide(served: Cluster) -> None:
    agent = served.start_agent(*flags(*DNS))
    for address in DNS:
        until(lambda address=address: from_pod(served, address) == SHOP, "the node answers")  # type: ignore[misc]
    served.world.run(NODE, ["conntrack", "-F"])
    queries = [dns.message.make_query(NAME, kind, id=number) for number, kind in enumerate(("A", "AAAA"))]

    def both() -> set[int]:
        with socket.socket(socket.AF_INET, UDP) as sock:
            sock.settimeout(30)
            sock.connect((DNS[0], 53))
            for query in queries:
                sock.send(query.to_wire())
            return {dns.message.from_wire(sock.recv(4096)).id for _ in queries}

    for member in (POD, NODE):
        assert inside(served.world.namespace(member), both) == {0, 1}
    for family in ("ipv4", "ipv6"):
        listed = served.world.run(NODE, ["conntrack", "-L", "-f", family, "-p", "udp"]).stdout
        assert not [line for line in listed.splitlines() if re.search(r"[sd]port=53\b", line)]
    assert from_pod(served, DNS[0], TCP) == SHOP
    listed = served.world.run(NODE, ["conntrack", "-L", "-p", "tcp"]).stdout
    assert re.search(r"dport=53\b", listed), "the control: what is tracked is seen"
    agent.stop()


def test_queries_wait_for_the_next_process_where_no_pod_could_answer(named: Cluster) -> None:
    service = named.expose("kube-dns", *DNS, ports=PORTS)
    agent = named.start_agent(*flags(*DNS))
    with lookups(named, [POD, NODE], DNS, NAME) as askers:
        until_all_say(askers, SHOP)
        printed = len(agent.lines)
        os.kill(dns_process(agent), signal.SIGKILL)
        dns_process(agent, after=printed)
        until_all_say(askers, SHOP)
    assert all(len(asker.lost) <= 1 for asker in askers), [asker.lost for asker in askers]
    named.withdraw(service)
    agent.stop()


@OWNERSHIP
def test_addresses_that_no_service_has_are_carried_and_not_tracked(named: Cluster, ownership: str) -> None:
    addresses = ("169.254.20.10", "fd00:20::10", *cluster_ips(11))
    agent = named.start_agent(*flags(*addresses, ownership=ownership))
    assert not [line for line in agent.lines if "not an address of this node" in line]
    for address in addresses:
        until(lambda address=address: from_pod(named, address) == SHOP, f"{address} answers")  # type: ignore[misc]
    named.world.run(NODE, ["conntrack", "-F"])  # what was asked before anybody answered
    for address in addresses:
        assert from_pod(named, address) == from_pod(named, address, TCP) == SHOP
    for family in ("ipv4", "ipv6"):
        listed = named.world.run(NODE, ["conntrack", "-L", "-f", family]).stdout
        assert not [line for line in listed.splitlines() if re.search(r"dport=53\b", line)]
    agent.stop()


def test_an_address_that_is_nowhere_is_a_problem_and_its_queries_go_on_as_before(served: Cluster) -> None:
    agent = served.start_agent(*flags(*DNS, "192.0.2.99"), "--service-interface=false")
    for address in (*DNS, "192.0.2.99"):
        agent.wait_for_line(re.escape(f"{address} is not an address of this node"))
    for address in DNS:
        assert from_pod(served, address) == from_pod(served, address, TCP) == ANSWER_OF_SERVERS
    agent.stop()
