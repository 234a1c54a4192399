"""Everybody reaches everybody, with the addresses they were given, and nothing else on the machine notices."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.lab.net import bridge_wiring
from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.net.topology import Node, OutsideHost, Pod, Topology
from nodeagent.model.addresses import Family
from tests.harness.sniffing import Sniffing
from tests.harness.worlds import routed_wiring
from tests.harness.worlds.power import Wiring
from tests.harness.worlds.world import World

pytestmark = pytest.mark.usefixtures("network_namespaces")

HOSTS = ("node-a", "node-b", "web-0", "far-0", "outside")


@pytest.fixture(scope="module")
def serving_world(shared_world: World) -> World:
    for name in HOSTS:
        shared_world[name].serve(80)
    return shared_world


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("server", HOSTS)
@pytest.mark.parametrize("client", ["caller", "far-0", "outside", "node-b"])
def test_a_server_is_reached_and_sees_the_address_its_client_has(
    serving_world: World, client: str, server: str, family: Family
) -> None:
    answer = serving_world[client].ask(serving_world[server].address(family), 80).only

    assert (answer.name, answer.local) == (server, serving_world[server].address(family))
    if client != server and (client, server) != ("node-b", "far-0"):
        assert answer.peer == serving_world[client].address(family)


@pytest.mark.parametrize(
    ("family", "gateway"), [(Family.IPV4, "10.244.1.1"), (Family.IPV6, "fd00:244:1::1")], ids=["IPv4", "IPv6"]
)
def test_a_node_talks_to_its_pods_from_their_gateway_address(
    serving_world: World, family: Family, gateway: str
) -> None:
    assert serving_world["node-a"].ask(serving_world["web-0"].address(family), 80).peers == {gateway}


def test_pods_and_clients_may_have_any_addresses(build_world: Callable[[Topology], World]) -> None:
    node = Node(
        "node",
        ("192.168.0.2", "192.168.99.11", "2001:db8::1"),
        ("10.180.0.254", "2002:400::fe"),
        (Pod("near", ("10.180.0.1", "2002:400::1")), Pod("caller", ("10.0.0.2", "10.0.0.3"))),
        attracts=("1.2.3.4/32",),
    )
    far = Node("far-node", ("192.168.0.3",), ("10.180.2.254",), (Pod("far", ("10.180.2.1",)),))
    world = build_world(Topology((node, far), (OutsideHost("client", ("203.0.113.2",)),)))
    for name in ("near", "far", "node"):
        world[name].serve(80)

    assert world["client"].ask("10.180.0.1", 80).peers == {"203.0.113.2"}
    assert world["caller"].ask("10.180.2.1", 80, source_address="10.0.0.3").peers == {"10.0.0.3"}
    assert world["client"].ask("192.168.99.11", 80).names == {"node": 1}
    assert world["near"].ask("2001:db8::1", 80).peers == {"2002:400::1"}
    world.run("node", ["ip", "route", "add", "local", "1.2.3.4", "dev", "lo"])
    world["node"].serve(81, addresses=("0.0.0.0",))
    assert world["client"].ask("1.2.3.4", 81).only.local == "1.2.3.4"


def test_attracted_packets_do_not_circle_between_node_and_underlay(shared_world: World) -> None:
    with Sniffing(shared_world["node-a"], "eth0") as sniffing:
        answer = shared_world["caller"].ask("10.96.0.99", 80).only
        seen = [packet for packet in sniffing.stop() if packet.destination == "10.96.0.99"]

    assert answer.failure is Failure.UNREACHABLE
    assert [packet.outgoing for packet in seen] == [True]


def test_a_pod_can_be_added_and_removed_while_others_talk(world: World) -> None:
    world["web-0"].serve(80)
    with world["caller"].hold(world["web-0"].address(), 80) as held:
        world.add_pod("node-a", Pod("late", ("10.244.1.50", "fd00:244:1::32"))).serve(80)
        assert world["outside"].ask("fd00:244:1::32", 80).names == {"late": 1}

        world.remove_pod("late")
        assert world["outside"].ask("10.244.1.50", 80).only.failure is Failure.UNREACHABLE
        assert held.ask().names == {"web-0": 1}
    with pytest.raises(KeyError):
        world["late"]


@pytest.mark.parametrize("joined_by", [routed_wiring, bridge_wiring], ids=["routed", "on a bridge"])
def test_a_node_whose_power_was_cut_comes_back_with_nothing_that_its_kernel_knew(joined_by: Wiring) -> None:
    nodes = tuple(
        Node(
            f"node-{number}",
            (f"192.168.0.1{number}", f"2001:db8::1{number}"),
            (f"10.244.{number}.1", f"fd00:244:{number}::1"),
            (Pod(f"pod-{number}", (f"10.244.{number}.2", f"fd00:244:{number}::2")),),
            pod_cidrs=(f"10.244.{number}.0/24", f"fd00:244:{number}::/64"),
        )
        for number in (1, 2)
    )
    with World(Topology(nodes), joined_by) as world:
        for name in ("node-1", "pod-1"):
            world[name].serve(80)
        world.nft("node-1", "add table ip of-before")
        world.write_sysctls("node-1", {"net/ipv4/conf/all/rp_filter": "1"})

        world.cut_power("node-1")
        assert world["pod-2"].ask("192.168.0.11", 80, timeout=1.0).failures

        world.give_power("node-1").serve(80)
        for address in (*nodes[0].addresses, *nodes[0].pods[0].addresses):
            assert world["pod-2"].ask(address, 80).only.failure is None
        assert world.run("node-1", ["nft", "list", "ruleset"]).stdout == ""
        assert world.run("node-1", ["cat", "/proc/sys/net/ipv4/conf/all/rp_filter"]).stdout == "0\n"


def test_worlds_side_by_side_do_not_see_each_other(build_world: Callable[[], World]) -> None:
    first, second = build_world(), build_world()
    first["web-0"].serve(80, name="first")
    second["web-0"].serve(80, name="second")

    assert first["outside"].ask("10.244.1.10", 80).names == {"first": 1}
    assert second["outside"].ask("10.244.1.10", 80).names == {"second": 1}


def host_state() -> dict[str, str]:
    """What a world must leave alone in the caller's own namespace."""
    listings = {
        command: subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout
        for command in ("ip -o link", "ip -o addr", "ip route show table all", "ip rule", "nft list ruleset")
    }
    sysctls = ("ipv4/ip_forward", "ipv4/conf/all/rp_filter", "ipv6/conf/all/forwarding", "ipv6/conf/all/accept_dad")
    return listings | {name: Path("/proc/sys/net", name).read_text() for name in sysctls}


def test_the_machine_itself_is_left_alone() -> None:
    before = host_state()
    with World() as world:
        world.write_sysctls("node-a", {"net/ipv4/icmp_ratelimit": "0"})
        world.nft("node-a", "table ip t { }")
        assert host_state() == before
    assert host_state() == before


def test_building_and_removing_a_standard_world_is_quick() -> None:
    started = time.monotonic()
    with World() as world:
        world["web-0"].serve(80)
        assert world["outside"].ask(world["web-0"].address(), 80).names
        built = time.monotonic()
    removed = time.monotonic()

    print(f"built and answering after {built - started:.2f} s, removed in {removed - built:.2f} s")
    assert built - started < 5, "0.5 s on an idle machine with two cores"
    assert removed - built < 5, "0.1 s on an idle machine with two cores"


@pytest.mark.parametrize(
    ("topology", "complaint"),
    [
        pytest.param(
            Topology((), (OutsideHost("a", ()), OutsideHost("a", ()))), "two members are called 'a'", id="same name"
        ),
        pytest.param(Topology((), (OutsideHost("underlay", ()),)), "underlay", id="reserved name"),
        pytest.param(
            Topology((), (OutsideHost("sixteen-letters-", ()),)), "at most 15", id="too long for an interface"
        ),
        pytest.param(Topology((), (OutsideHost("eth0", ()),)), "interface name", id="name of an uplink"),
        pytest.param(Topology((), (OutsideHost("a", ("10.0.0.01",)),)), "canonical", id="address spelled oddly"),
        pytest.param(
            Topology((Node("n", ("10.0.0.1",), ("10.1.0.1",), (Pod("p", ("fd00::1",)),)),)),
            "needs a pod gateway and an address for IPv6 of p",
            id="pod of a family that its node has not",
        ),
    ],
)
def test_an_impossible_topology_is_refused_before_anything_is_made(topology: Topology, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        World(topology)


def test_a_failing_command_is_reported_with_its_message(shared_world: World) -> None:
    with pytest.raises(LabError, match="ip link del nothing in node-a ended with 1: Cannot find device"):
        shared_world.run("node-a", ["ip", "link", "del", "nothing"])
