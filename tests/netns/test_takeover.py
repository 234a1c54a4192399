"""Taking over from kube-proxy on a live node: connections run on its rules while the agent starts and the rules go.

The rules are shaped like those of kube-proxy 1.36 (pkg/proxy/nftables/proxier.go, pkg/proxy/iptables/proxier.go), with
the kubelet's own chains beside them. They know web-0 and web-1; the agent knows web-2 too, so an answer of web-2 shows
whose word counts for a new connection.
"""

import re
import shutil
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from nodeagent.lab.net.member import Holding
from nodeagent.model.addresses import Protocol
from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster
from tests.harness.links import Links
from tests.harness.objects import service_port
from tests.harness.warm_start import AGENT
from tests.harness.worlds.world import World
from tests.netns.kube_proxy_rules import (
    CLUSTER_IPS,
    EXTERNAL_IPS,
    NODE_PORT,
    OLD_PODS,
    PODS,
    PORTS,
    install,
    rules_of_node,
)

HELD = 4
PATIENCE_SECONDS = 60.0
SYN_SENT_AGAIN = 1.0
"""Seconds after which the kernel repeats a SYN (TCP_TIMEOUT_INIT): a slower connection lost a packet."""


class Client(NamedTuple):
    """Who connects to what."""

    member: str
    address: str
    port: int
    protocol: Protocol = Protocol.TCP


CLIENTS = [
    client
    for cluster_ip, external_ip, node_ip in zip(CLUSTER_IPS, EXTERNAL_IPS, ("192.168.0.2", "2001:db8::2"), strict=True)
    for client in (
        Client("caller", cluster_ip, 80),
        Client("caller", cluster_ip, 53, Protocol.UDP),
        Client(NODE, cluster_ip, 80),
        Client("outside", external_ip, 80),
        Client("outside", node_ip, NODE_PORT),
    )
]
MODES = pytest.mark.parametrize("mode", ["nftables", "iptables-nft", "iptables-legacy"])


@pytest.fixture
def cluster(world: World, tmp_path: Path) -> Cluster:
    """The pods serve, and the manifests know all of them."""
    made = Cluster(world, tmp_path)
    for pod in PODS:
        for protocol in (Protocol.TCP, Protocol.UDP):
            world[pod].serve(TARGET_PORT, protocol)
    expose(made, PODS)
    return made


def expose(cluster: Cluster, pods: tuple[str, ...]) -> None:
    """The service, with these endpoints."""
    ports = [
        service_port(port.number, Protocol[port.protocol.upper()], name=port.name, node_port=port.node_port)
        for port in PORTS
    ]
    cluster.expose("web", *CLUSTER_IPS, pods=pods, ports=ports, spec=ServiceSpec(external_ips=EXTERNAL_IPS))


def hold_all(world: World, stack: ExitStack, *, timeout: float = 3.0) -> list[Holding]:
    """Open connections of every client, until the stack is closed. timeout: of each question, in seconds."""
    return [
        stack.enter_context(
            world[client.member].hold(client.address, client.port, client.protocol, count=HELD, timeout=timeout)
        )
        for client in CLIENTS
    ]


def who_answers(holding: Holding) -> list[tuple[str, str, str]]:
    """Server, client as the server sees it, and failure, of each held connection."""
    return [(answer.name, answer.peer, answer.detail) for answer in holding.ask()]


def new_connections(world: World) -> Counter[str]:
    """Who answers ten new connections of each client; every one is answered."""
    names: Counter[str] = Counter()
    for client in CLIENTS:
        survey = world[client.member].ask(client.address, client.port, client.protocol, count=10)
        assert not survey.failures, client
        names += survey.names
    return names


@MODES
def test_no_connection_is_lost(cluster: Cluster, mode: str) -> None:
    world = cluster.world
    install(world, mode)
    with ExitStack() as stack:
        held = hold_all(world, stack)
        loads = [
            stack.enter_context(world[client.member].load(client.address, client.port, client.protocol, interval=0.02))
            for client in CLIENTS
        ]
        opened = [who_answers(holding) for holding in held]
        assert {name for answers in opened for name, _, _ in answers} == set(OLD_PODS)

        cluster.start_agent(*WITH_POD_CIDRS)
        beside = [who_answers(holding) for holding in held]
        chosen_beside = new_connections(world)
        removed = cluster.call("cleanup", "--of", "kube-proxy")
        after = [who_answers(holding) for holding in held]
        chosen_after = new_connections(world)
        reports = [load.stop() for load in loads]

    assert removed
    assert "kube-proxy" not in rules_of_node(world)
    assert "KUBE-S" not in rules_of_node(world)
    assert beside == opened
    assert after == opened
    assert set(chosen_beside) == set(chosen_after) == set(PODS)
    for client, report in zip(CLIENTS, reports, strict=True):
        assert not report.failures, f"{client}: {report.failed[0]}"
        assert report.slowest < SYN_SENT_AGAIN, client


@MODES
def test_the_agent_decides_for_new_connections_as_soon_as_it_runs(cluster: Cluster, mode: str) -> None:
    """Its chains come before dstnat, and the first mapping of a connection stands (nf_nat_core.c)."""
    install(cluster.world, mode, PODS[:1])
    assert set(new_connections(cluster.world)) == set(PODS[:1])
    expose(cluster, PODS[1:])

    cluster.start_agent(*WITH_POD_CIDRS)

    assert set(new_connections(cluster.world)) == set(PODS[1:])


@MODES
def test_a_udp_flow_to_an_endpoint_that_is_gone_finds_another(cluster: Cluster, mode: str) -> None:
    install(cluster.world, mode, PODS[:1])
    expose(cluster, PODS[1:])
    with cluster.world["caller"].hold(CLUSTER_IPS[0], 53, Protocol.UDP) as held:
        assert set(held.opened.names) == set(PODS[:1])

        cluster.start_agent(*WITH_POD_CIDRS)
        ends = time.monotonic() + PATIENCE_SECONDS
        while not set(found := held.ask().names) <= set(PODS[1:]):
            assert time.monotonic() < ends, found
            time.sleep(0.1)


@MODES
def test_the_agent_decides_beside_a_kube_proxy_that_comes_later(cluster: Cluster, mode: str) -> None:
    """Whose chains were registered last does not matter, and neither of the two breaks a connection."""
    world = cluster.world
    cluster.start_agent(*WITH_POD_CIDRS)
    with ExitStack() as stack:
        held = hold_all(world, stack)
        opened = [who_answers(holding) for holding in held]

        install(world, mode, PODS[:1])
        chosen_beside = new_connections(world)
        beside = [who_answers(holding) for holding in held]
        cluster.call("cleanup", "--of", "kube-proxy")
        after = [who_answers(holding) for holding in held]

    assert set(chosen_beside) == set(PODS)
    assert beside == after == opened
    assert set(new_connections(world)) == set(PODS)


@MODES
def test_a_dry_run_names_what_would_go_and_changes_nothing(world: World, tmp_path: Path, mode: str) -> None:
    cluster = Cluster(world, tmp_path)
    install(world, mode)
    before = rules_of_node(world)

    would = cluster.call("cleanup", "--of", "kube-proxy", "--dry-run")
    assert rules_of_node(world) == before
    did = cluster.call("cleanup", "--of", "kube-proxy", "--force")
    again = cluster.call("cleanup", "--of", "kube-proxy")

    assert would.replace("would remove ", "removed ") == did
    assert again == "nothing of kube-proxy was here\n"


def _wait_for_name(pid: int, name: str) -> None:
    """A process that was just started goes by another name until it has become the program."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while Path(f"/proc/{pid}/comm").read_text().strip() != name:
        assert time.monotonic() < ends, f"process {pid} is not {name}"
        time.sleep(0.01)


def test_beside_a_running_kube_proxy_there_is_only_a_dry_run(world: World, tmp_path: Path) -> None:
    """It would write its rules again. Any program of that name will do."""
    install(world, "nftables")
    program = tmp_path / "kube-proxy"
    shutil.copy("/bin/sleep", program)
    kube_proxy = world.start(NODE, [str(program), "60"])
    _wait_for_name(kube_proxy.pid, "kube-proxy")
    command = [*AGENT, "cleanup", "--of", "kube-proxy"]

    refused = world.run(NODE, command, check=False)
    printed = world.run(NODE, [*command, "--dry-run"])
    left = rules_of_node(world)
    kube_proxy.kill()
    world.run(NODE, [*command, "--force"])

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"nodeagent: kube-proxy runs here (process {kube_proxy.pid}) and would write its rules again: stop it\n"
    )
    assert printed.stdout.count("would remove") == 2
    assert left.count("table ip") == 2
    assert "table ip" not in rules_of_node(world)


def test_without_capability_the_command_says_so(world: World) -> None:
    result = world.run(
        NODE, ["setpriv", "--bounding-set=-all", *AGENT, "cleanup", "--of", "kube-proxy", "--dry-run"], check=False
    )

    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "nodeagent: nf_tables: not permitted: run as root or with CAP_NET_ADMIN\n"


@pytest.mark.parametrize("mode", ["iptables-nft", "iptables-legacy"])
def test_chains_of_the_kubelet_stay(world: World, tmp_path: Path, mode: str) -> None:
    cluster = Cluster(world, tmp_path)
    install(world, mode)

    cluster.call("cleanup", "--of", "kube-proxy", "--force")

    left = set(re.findall(r"KUBE-[A-Z-]+", rules_of_node(world)))
    assert left == {"KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"}


def test_without_an_agent_the_same_removal_ends_connections_and_is_warned_of(cluster: Cluster) -> None:
    """What keeps them alive in the other tests is the agent's table: without a NAT chain nothing is translated."""
    world = cluster.world
    install(world, "nftables")
    with world["caller"].hold(CLUSTER_IPS[0], 80, timeout=0.5) as held:
        result = world.run(NODE, [*AGENT, "cleanup", "--of", "kube-proxy", "--force"])

        assert held.ask().failures
    assert "there is no table nodeagent: without kube-proxy's rules no service is reachable" in result.stderr


def test_addresses_of_kube_ipvs0_stay_local_when_it_goes(cluster: Cluster) -> None:
    """The ipvs mode keeps ClusterIPs on an interface of its own; the agent's has them too, and takes over."""
    world = cluster.world
    Links(world, NODE).add_bridge("kube-ipvs0", *CLUSTER_IPS)
    cluster.start_agent(*WITH_POD_CIDRS)
    with ExitStack() as stack:
        held = hold_all(world, stack)
        opened = [who_answers(holding) for holding in held]

        removed = cluster.call("cleanup", "--of", "kube-proxy")

        assert [who_answers(holding) for holding in held] == opened
    assert removed == "removed ipvs interface kube-ipvs0\n"
    assert set(new_connections(world)) == set(PODS)
    for address in CLUSTER_IPS:
        assert not world["caller"].ping(address).failures


def test_the_way_back_loses_nothing(cluster: Cluster) -> None:
    """The node's own connections through a ClusterIP have the node's address as their source, which stays."""
    world = cluster.world
    agent = cluster.start_agent(*WITH_POD_CIDRS)
    with ExitStack() as stack:
        held = hold_all(world, stack, timeout=0.5)
        opened = [who_answers(holding) for holding in held]
        install(world, "nftables")
        agent.stop()
        cluster.call("cleanup")
        after = [who_answers(holding) for holding in held]

    assert after == opened
    assert set(new_connections(world)) == set(OLD_PODS)
