"""An address where the node answers names cannot be taken by a Service that names it as its own (docs/semantics.md 77)."""

import re
import socket
from collections.abc import Iterator

import pytest

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import Protocol
from nodeagent.model.objects import Service, ServiceSpec
from tests.harness.cluster import NODE, Cluster, cluster_ips
from tests.harness.dns.lookups import ANSWER_OF_SERVERS, ask, servers_in, until
from tests.harness.objects import make_service, make_slices, service_port

ELSEWHERE = ("198.51.100.53", "2001:db8:53::53")
"""The control: external addresses of the same Service that nobody answers names at."""
SHOP = cluster_ips(830)
NAME = "shop.default.svc.cluster.local."
POD = "caller"
PORTS = (service_port(53, Protocol.UDP, name="dns"), service_port(53, name="dns-tcp"))
KINDS = (socket.SOCK_DGRAM, socket.SOCK_STREAM)


@pytest.fixture
def served(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with a DNS server in a pod, which answers everything with an address of its own."""
    shop = cluster.expose("shop", *SHOP, pods=("web-0",))
    with servers_in(cluster, "web-0"):
        yield cluster
    cluster.withdraw(shop)
    cluster.kill_agents()
    cluster.call("cleanup")


def here(cluster: Cluster) -> tuple[str, ...]:
    """Where the node answers names: its own address of each family."""
    return cluster.world[NODE].addresses


def a_service_at(cluster: Cluster, kind: str) -> Service:
    """A Service of that server whose external addresses are all of these."""
    addresses = (*here(cluster), *ELSEWHERE)
    spec = ServiceSpec(external_ips=addresses) if kind == "external IP" else ServiceSpec()
    ingress = addresses if kind == "load-balancer IP" else ()
    service = make_service("thief", *cluster_ips(831), ports=PORTS, load_balancer_ips=ingress, spec=spec)
    homes = [(cluster.world["web-0"].addresses, NODE)]
    cluster.manifests.put(*make_slices(service, homes, target_port=53), service)
    return service


def said_to(cluster: Cluster, member: str, address: str, kind: socket.SocketKind) -> str:
    try:
        return inside(cluster.world.namespace(member), lambda: ask(address, NAME, kind))
    except OSError as error:
        return repr(error)


@pytest.mark.parametrize("kind", ["external IP", "load-balancer IP"])
def test_queries_to_the_node_stay_there(served: Cluster, kind: str) -> None:
    service, places = a_service_at(served, kind), here(served)
    without = served.start_agent("--dns=false")
    for address in (*places, *ELSEWHERE):
        for transport in KINDS:
            assert said_to(served, POD, address, transport) == ANSWER_OF_SERVERS, "without names nobody protects them"
    without.stop()

    agent = served.start_agent("--dns", "--dns-listen", ",".join(places), "--dns-upstreams", "127.0.0.1:9")
    for late in (False, True):
        printed = 0
        if late:
            printed = len(agent.lines)
            served.withdraw(service)
            agent.wait_for_line("solved: .* is where this node answers names", after=printed)
            printed = len(agent.lines)
            a_service_at(served, kind)
        for address in places:
            text = re.escape(address)
            agent.wait_for_line(
                rf"problem: .*{kind} \[?{text}\]?:53/UDP is where this node answers names: not captured", after=printed
            )
        for address in ELSEWHERE:
            for transport in KINDS:
                until(
                    lambda address=address, transport=transport: (  # type: ignore[misc]
                        said_to(served, POD, address, transport) == ANSWER_OF_SERVERS
                    ),
                    f"{address} is the Service's",
                )
        for address in places:
            until(lambda address=address: said_to(served, POD, address, KINDS[0]) == SHOP[0], f"{address} answers")  # type: ignore[misc]
            for member in (POD, NODE):
                for transport in KINDS:
                    assert said_to(served, member, address, transport) == SHOP[0]
    served.withdraw(service)
    agent.stop()
