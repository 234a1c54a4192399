"""A node whose Services work, faults to plant on it, and what commands say there."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from nodeagent.model.addresses import Protocol, endpoint_text, family_of
from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.documented_commands import run_by
from tests.harness.objects import make_service, make_slices, service_port
from tests.harness.warm_start import AGENT
from tests.harness.worlds.world import World

WEB, FAR, OPEN, BALANCED, HOSTED = (cluster_ips(number)[0] for number in range(1, 6))
WEB6 = cluster_ips(1)[1]
BALANCER = "198.51.100.9"
OPEN_BALANCER = "198.51.100.8"
GATEWAY = "10.244.1.1"
CLIENT_PORT, NODE_PORT = 4444, 30080
WITHOUT_OWNER = ("--table-ownership", "plain", "--conntrack-max-per-core", "0")
SILENCE_SECONDS = 0.4
DROP, PASS = 2, 0
"""TC_ACT_SHOT and TC_ACT_OK."""
PATIENCE_SECONDS = 60.0
PORTS = (service_port(80, name="http"), service_port(80, Protocol.UDP, name="dns"))


def program(cluster: Cluster) -> None:
    """What works."""
    world = cluster.world
    cluster.expose("web", *cluster_ips(1), pods=("web-0",), ports=PORTS)
    cluster.expose("far", *cluster_ips(2), pods=("far-0",))
    balanced(cluster, pods=("web-0",))
    ranges(cluster, "203.0.113.0/24")
    hosted = make_service("hosted", *cluster_ips(5))
    cluster.manifests.put(*make_slices(hosted, [(world[NODE].addresses, NODE)], target_port=9100), hosted)
    opened = make_service("opened", *cluster_ips(6), ports=(service_port(80, name="http", node_port=NODE_PORT),))
    cluster.manifests.put(*make_slices(opened, [(world["web-0"].addresses, NODE)], target_port=TARGET_PORT), opened)
    program_again(cluster)


def program_again(cluster: Cluster) -> None:
    cluster.program_once(*WITH_POD_CIDRS, *WITHOUT_OWNER)


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


def tc_filter(interface: str, direction: str, action: int) -> Plant:
    """All that goes by there ends so: a program of two words, for the classifier `bpf`."""
    return by_shell(
        f"tc qdisc add dev {interface} clsact; tc filter add dev {interface} {direction} bpf da bytecode '1,6 0 0 {action}'",
        f"tc qdisc del dev {interface} clsact",
    )


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


def as_if_pods_were(cidr: str) -> Plant:
    """An agent that takes others for pods."""

    @contextmanager
    def plant(cluster: Cluster) -> Iterator[None]:
        cluster.program_once("--cluster-cidr", cidr, *WITHOUT_OWNER)
        try:
            yield
        finally:
            program_again(cluster)

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


def without_answer(pod: str, client: str, address: str, bits: str) -> Plant:
    """A pod that answers nobody who looks for it, and a client that has tried; both forget it afterwards."""

    @contextmanager
    def plant(cluster: Cluster) -> Iterator[None]:
        world = cluster.world
        forget = ["ip", bits, "neigh", "flush", "dev", pod]
        world.run(pod, ["ip", "link", "set", "eth0", "arp", "off"])
        world.run(NODE, forget)
        world[client].ask(address, 80, timeout=SILENCE_SECONDS)
        try:
            yield
        finally:
            world.run(pod, ["ip", "link", "set", "eth0", "arp", "on"])

    return plant


def first_line(world: World, source: str, address: str, protocol: str, *options: str) -> tuple[str, int]:
    """The first line of a trace, and its exit code."""
    family = family_of(address)
    place = f"{endpoint_text(address, 80)}/{protocol}"
    argv = [*AGENT, "trace", world[source].address(family), "->", place, *options]
    done = world.run(NODE, argv, check=False)
    assert done.stdout, done.stderr
    return done.stdout.splitlines()[0], done.returncode


def first_line_of_strangers(
    world: World, source: str, address: str, protocol: str, holds: Callable[[str], bool]
) -> tuple[str, int]:
    """The first line of a trace, and its exit code, where the node knows no host behind its bridge. A pod may make itself known meanwhile:
    if the line does not hold, once more, until the patience is over."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        for bits in ("-4", "-6"):
            world.run(NODE, ["ip", bits, "neigh", "flush", "dev", "cni0"])
        line, code = first_line(world, source, address, protocol)
        if holds(line) or time.monotonic() > end:
            return line, code


def works(world: World, source: str, address: str, protocol: str, *, read_with_retries: bool) -> bool:
    timeout = PATIENCE_SECONDS if read_with_retries else SILENCE_SECONDS
    return world[source].ask(address, 80, Protocol[protocol.upper()], timeout=timeout).only.failure is None


def forget_connections(world: World) -> None:
    """Those that an earlier fault cut off go on to be translated: one of a client that gets the same port by chance would work."""
    world.run(NODE, ["conntrack", "-F"])


def works_again(world: World, source: str, address: str, protocol: str) -> bool:
    """Whether it does within the patience: a neighbour that did not answer is given up for a moment."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not works(world, source, address, protocol, read_with_retries=True):
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def check_line(world: World) -> str:
    done = world.run(NODE, [*AGENT, "check", "-o", "json"], check=False)
    verdict: str = json.loads(done.stdout)["verdict"]
    return verdict


def documented(document: str, *, of_bridges: bool = False) -> list[tuple[list[str], str]]:
    """The traces of this document, and how the first line that each prints begins: those about pods on a
    bridge, or all others."""
    blocks = run_by("tests/netns/trace/test_planted_faults.py", document)
    traced = [(block.commands.split()[1:], block.shown[0].partition("…")[0]) for block in blocks]
    return [(arguments, begins) for arguments, begins in traced if ("the bridge" in begins) is of_bridges]
