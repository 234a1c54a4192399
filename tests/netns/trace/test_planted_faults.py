"""A classic reason why "my service does not work" is planted, and the first line of `trace` or `check` names it.

Around each stands its control: without the fault the connection works, and the same command finds nothing.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.lab.net.world import World
from nodeagent.model.addresses import Protocol
from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import make_service, make_slices, service_port
from tests.harness.warm_start import AGENT

pytestmark = pytest.mark.kernel

WEB, FAR, OPEN, BALANCED, HOSTED = (cluster_ips(number)[0] for number in range(1, 6))
BALANCER = "198.51.100.9"
OPEN_BALANCER = "198.51.100.8"
CLIENT_PORT = 4444
SILENCE_SECONDS = 0.4
PATIENCE_SECONDS = 20.0
PORTS = (service_port(80, name="http"), service_port(80, Protocol.UDP, name="dns"))


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Cluster:
    """Services on `node-a`, programmed in a plain table."""
    world = cluster.world
    for pod in ("web-0", "far-0"):
        for protocol in (Protocol.TCP, Protocol.UDP):
            world[pod].serve(TARGET_PORT, protocol)
    program(cluster)
    return cluster


def program(cluster: Cluster) -> None:
    """What works."""
    world = cluster.world
    cluster.expose("web", *cluster_ips(1), pods=("web-0",), ports=PORTS)
    cluster.expose("far", *cluster_ips(2), pods=("far-0",))
    balanced(cluster, pods=("web-0",))
    ranges(cluster, "203.0.113.0/24")
    hosted = make_service("hosted", *cluster_ips(5))
    cluster.manifests.put(*make_slices(hosted, [(world[NODE].addresses, NODE)], target_port=9100), hosted)
    program_again(cluster)


def program_again(cluster: Cluster) -> None:
    cluster.program_once(*WITH_POD_CIDRS, "--table-ownership", "plain", "--conntrack-max-per-core", "0")


def balanced(cluster: Cluster, pods: tuple[str, ...]) -> None:
    """A load balancer's address with policy Local."""
    spec = ServiceSpec(external_traffic_policy="Local")
    service = make_service("balanced", *cluster_ips(4), load_balancer_ips=(BALANCER,), spec=spec)
    homes = {"web-0": NODE, "far-0": "node-b"}
    places = [(cluster.world[pod].addresses, homes[pod]) for pod in pods]
    cluster.manifests.put(*make_slices(service, places, target_port=TARGET_PORT), service)


def ranges(cluster: Cluster, cidr: str) -> None:
    """A load balancer's address for some sources."""
    spec = ServiceSpec(load_balancer_source_ranges=(cidr,))
    service = make_service("open", *cluster_ips(3), load_balancer_ips=(OPEN_BALANCER,), spec=spec)
    places = [(cluster.world["web-0"].addresses, NODE)]
    cluster.manifests.put(*make_slices(service, places, target_port=TARGET_PORT), service)


def emptied(cluster: Cluster) -> None:
    cluster.expose("web", *cluster_ips(1), pods=(), ports=PORTS)


Plant = Callable[[Cluster], AbstractContextManager[None]]


def by_shell(script: str, undo: str) -> Plant:
    """A fault that a shell on the node plants, and another that undoes it."""

    @contextmanager
    def plant(cluster: Cluster) -> Iterator[None]:
        cluster.world.run(NODE, ["sh", "-ec", script])
        try:
            yield
        finally:
            cluster.world.run(NODE, ["sh", "-ec", undo])

    return plant


def by_objects(change: Callable[[Cluster], None]) -> Plant:
    """A fault in the objects."""

    @contextmanager
    def plant(cluster: Cluster) -> Iterator[None]:
        change(cluster)
        program_again(cluster)
        try:
            yield
        finally:
            program(cluster)

    return plant


@contextmanager
def missing_route(cluster: Cluster) -> Iterator[None]:
    route = cluster.world.run(NODE, ["ip", "route", "show", "default"]).stdout.split()
    cluster.world.run(NODE, ["ip", "route", "del", "default"])
    try:
        yield
    finally:
        cluster.world.run(NODE, ["ip", "route", "add", *route])


@contextmanager
def flushed(cluster: Cluster) -> Iterator[None]:
    cluster.world.run(NODE, ["nft", "flush", "ruleset"])
    yield
    program(cluster)


FIREWALL = "table inet guard { chain f { type filter hook forward priority 0; tcp dport 8080 drop; }; }"
FAULTS = [
    pytest.param(
        by_shell(f"nft '{FIREWALL}'", "nft delete table inet guard"),
        ("caller", WEB, "tcp"), "inet guard, chain f: tcp dport 8080 drop", id="firewall of the host",
    ),
    pytest.param(
        by_shell("iptables -P FORWARD DROP", "iptables -P FORWARD ACCEPT; nft delete table ip filter"),
        ("caller", WEB, "tcp"), "ip filter, chain FORWARD: the policy of the chain", id="policy of FORWARD",
    ),
    pytest.param(
        missing_route,
        ("caller", FAR, "tcp"), "no route to 10.244.2.10", id="missing route",
    ),
    pytest.param(
        by_shell("sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv4.ip_forward=1"),
        ("caller", WEB, "tcp"), "forwarding is off on caller; sysctl -w net.ipv4.ip_forward=1", id="no forwarding",
    ),
    pytest.param(
        by_objects(lambda cluster: balanced(cluster, pods=("far-0",))),
        ("outside", BALANCER, "tcp"), "has no endpoint on this node, and its externalTrafficPolicy is Local",
        id="policy Local without a local pod",
    ),
    pytest.param(
        by_objects(lambda cluster: ranges(cluster, "192.0.2.0/24")),
        ("outside", OPEN_BALANCER, "tcp"), "203.0.113.2 is in none of the source ranges of default/open",
        id="source range",
    ),
    pytest.param(
        by_objects(emptied),
        ("caller", WEB, "tcp"), "default/web:http has no endpoints", id="no endpoints",
    ),
    pytest.param(flushed, ("caller", WEB, "tcp"), "there is no table nodeagent", id="table flushed by another"),
]  # fmt: skip


def first_line(world: World, source: str, address: str, protocol: str, *options: str) -> tuple[str, int]:
    """The first line of a trace, and its exit code."""
    argv = [*AGENT, "trace", world[source].address(), "->", f"{address}:80/{protocol}", *options]
    done = world.run(NODE, argv, check=False)
    return done.stdout.splitlines()[0], done.returncode


def works(world: World, source: str, address: str, protocol: str, *, patiently: bool) -> bool:
    timeout = PATIENCE_SECONDS if patiently else SILENCE_SECONDS
    return world[source].ask(address, 80, Protocol[protocol.upper()], timeout=timeout).only.failure is None


@pytest.mark.parametrize(("plant", "connection", "cause"), FAULTS)
def test_the_first_line_of_a_trace_names_the_cause(
    node: Cluster, plant: Plant, connection: tuple[str, str, str], cause: str
) -> None:
    world = node.world

    def finds_nothing() -> None:
        line, code = first_line(world, *connection)
        assert (line.partition(":")[0], code) == ("arrives", 0), line
        assert works(world, *connection, patiently=True)

    finds_nothing()
    with plant(node):
        line, code = first_line(world, *connection)
        assert cause in line
        assert code == 1
        assert not works(world, *connection, patiently=False)
    finds_nothing()


TROUBLESHOOTING = Path(__file__).parents[3] / "docs" / "troubleshooting.md"


def documented() -> list[tuple[list[str], str]]:
    """The commands for root in the document, and how the first line that each prints begins."""
    lines = [line.strip() for line in TROUBLESHOOTING.read_text().splitlines() if line.startswith("    ")]
    starts = [number for number, line in enumerate(lines) if line.startswith("# nodeagent trace ")]
    return [(lines[number].split()[2:], lines[number + 1].partition("…")[0]) for number in starts]


@pytest.mark.parametrize(("arguments", "begins"), documented(), ids=lambda value: str(value)[-40:])
def test_the_document_says_what_a_trace_says(node: Cluster, arguments: list[str], begins: str) -> None:
    found: list[Any] = [fault.values[0] for fault in FAULTS if str(fault.values[2]) in begins]
    (plant,) = found
    with plant(node):
        done = node.world.run(NODE, [*AGENT, *arguments], check=False)
    assert done.stdout.startswith(begins)
    assert done.returncode == 1


def test_a_target_port_that_nobody_listens_on(node: Cluster) -> None:
    connection = ("caller", HOSTED, "tcp")
    line, code = first_line(node.world, *connection)
    assert "no program of this node listens on 192.168.0.2:9100/TCP" in line
    assert code == 1
    assert not works(node.world, *connection, patiently=True)
    server = node.world[NODE].serve(9100)
    assert first_line(node.world, *connection)[1] == 0
    assert works(node.world, *connection, patiently=True)
    server.stop()


def test_a_reverse_path_filter(node: Cluster) -> None:
    """What the route back leads elsewhere is dropped; trace says so before, check counts it after."""
    world, connection = node.world, ("outside", BALANCER, "tcp")
    assert first_line(world, *connection, "--from", "eth0")[1] == 0
    assert works(world, *connection, patiently=True)
    assert check_line(world) == "healthy"
    strict = by_shell(
        "sysctl -qw net.ipv4.conf.eth0.rp_filter=1; ip route add 203.0.113.2 dev caller",
        "sysctl -qw net.ipv4.conf.eth0.rp_filter=0; ip route del 203.0.113.2 dev caller",
    )
    with strict(node):
        line, code = first_line(world, *connection, "--from", "eth0")
        assert "rp_filter (strict) of eth0 does not believe 203.0.113.2" in line
        assert code == 1
        assert not works(world, *connection, patiently=False)
        assert check_line(world).startswith("not healthy: rp_filter: the reverse path filter has dropped")
    assert check_line(world) == "healthy"


def check_line(world: World) -> str:
    done = world.run(NODE, [*AGENT, "check", "-o", "json"], check=False)
    verdict: str = json.loads(done.stdout)["verdict"]
    return verdict


def test_a_stale_flow_of_udp(node: Cluster) -> None:
    """A client that keeps its port goes on sending to an endpoint that is none any more."""
    world = node.world
    client = world["caller"].address()
    conntrack(world, "-D", "-p", "udp", "-s", client)
    assert works(world, "caller", WEB, "udp", patiently=True)
    assert first_line(world, "caller", WEB, "udp")[1] == 0
    original = ["-s", client, "-d", WEB, "--sport", str(CLIENT_PORT), "--dport", "80"]
    reply = ["-r", "10.244.1.99", "-q", client, "--reply-port-src", "8080", "--reply-port-dst", str(CLIENT_PORT)]
    conntrack(world, "-I", "-p", "udp", "-t", "300", "-u", "SEEN_REPLY", *original, *reply)
    line, code = first_line(world, "caller", WEB, "udp")
    assert line.startswith("stale: ")
    assert f"the tracked flow of {client}:{CLIENT_PORT} still goes to 10.244.1.99:8080" in line
    assert code == 1
    stuck = world["caller"].ask(WEB, 80, Protocol.UDP, timeout=SILENCE_SECONDS, source_port=CLIENT_PORT)
    assert stuck.only.failure is not None
    cure = line.rpartition("; ")[2].split()
    assert cure[0] == "conntrack"
    world.run(NODE, cure)
    assert first_line(world, "caller", WEB, "udp")[1] == 0
    freed = world["caller"].ask(WEB, 80, Protocol.UDP, timeout=PATIENCE_SECONDS, source_port=CLIENT_PORT)
    assert freed.only.failure is None


def conntrack(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    return world.run(NODE, ["conntrack", *arguments], check=False)


def test_a_full_connection_table(node: Cluster) -> None:
    world, connection = node.world, ("caller", WEB, "tcp")
    assert first_line(world, *connection)[1] == 0
    filler = world.start(NODE, [sys.executable, "-u", "-m", "nodeagent.lab.full_conntrack"])
    filler.wait_for_line("full", seconds=60)
    line, code = first_line(world, *connection)
    assert line.startswith("dropped: ")
    assert "the connection table is full" in line
    assert code == 1
    assert not works(world, *connection, patiently=False)
    assert check_line(world).startswith("not healthy: connection table: it is full")
    filler.stop()
    assert first_line(world, *connection)[1] == 0
    assert works(world, *connection, patiently=True)
