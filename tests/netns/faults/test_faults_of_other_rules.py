"""Rules of other programs that stop connections, and interfaces that lose long packets: the running agent has them as problems."""

import socket
import time
from dataclasses import dataclass

import pytest

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.proxy.dataplane.followed_sample import LOST, STOPPED
from tests.harness.cluster import NODE, Cluster, cluster_ips
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import WatchedNode, wait_for
from tests.netns.faults.looks import appears, is_healthy, problems, works
from tests.netns.faults.scenes import CURE, guard
from tests.netns.faults.services_of_pods import NARROW, PODS, SILENCE, USUAL, placed, put_services, width

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

MTU_DISCOVERY = {Family.IPV4: (socket.IPPROTO_IP, 10), Family.IPV6: (socket.IPPROTO_IPV6, 23)}
"""IP_MTU_DISCOVER, IPV6_MTU_DISCOVER (linux/in.h, in6.h)."""
IP_PMTUDISC_DO = 2
ALERTS = {STOPPED: "NodeagentConnectionsStopped", LOST: "NodeagentLongPacketsLost"}


@dataclass(frozen=True)
class Scene:
    """plant, cure: for a shell on the node. breaks: the Service that a client then does not reach in any family; empty: long packets.
    says: what the problems have, of each family."""

    plant: str
    cure: str
    reason: str
    breaks: str
    client: str
    says: tuple[str, ...]


TO_SERVICES = "ip daddr 10.96.0.0/16 notrack; ip6 daddr fd00:10:96::/112 notrack"
SCENES = {
    "a policy of another program's chain, for all that is forwarded": Scene(
        guard("forward", "ct state established accept", policy="drop"), CURE, STOPPED, "far", "caller",
        tuple(f"{family.value} connections of pods of this node (asked for {{{pod}}}) to Services fail: forward: inet guard, chain f: "
              "the policy of the chain; change that rule: nft -a list chain inet guard f"
              for family, pod in ((Family.IPV4, "pod"), (Family.IPV6, "pod6"))),
    ),
    "connections of the node that are dropped": Scene(
        guard("output", "tcp dport 8080 drop"), CURE, STOPPED, "web", NODE,
        tuple(f"{family.value} connections of this node to Services fail: output: inet guard, chain f: tcp dport 8080 drop"
              for family in Family),
    ),
    "Services that are not tracked": Scene(
        guard("prerouting", TO_SERVICES, -300), CURE, STOPPED, "web", "caller",
        ("because the packet is not tracked: prerouting: inet guard, chain f: ip daddr 10.96.0.0/16 notrack",
         "because the packet is not tracked: prerouting: inet guard, chain f: ip6 daddr fd00:10:96::/112 notrack"),
    ),
    "an interface that takes shorter packets, and nobody learns of it": Scene(
        f"{width('eth0', NARROW)}; {guard('output', SILENCE)}", f"{CURE}; {width('eth0', USUAL)}", LOST, "", "caller",
        tuple(f'above {NARROW} bytes are lost: eth0 takes no longer ones ({{wide}}: {USUAL}), and the ICMP error about it is stopped: '
              f'output: inet guard, chain f: {one}' for one in ("icmp type destination-unreachable", "icmpv6 type packet-too-big")),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def watched(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> WatchedNode:
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    put_services(watched)
    watched.start()
    return watched


def hears_of_long_packets(watched: WatchedNode, address: str) -> bool:
    """Whether a client that sends packets that are too long learns it, or gets an answer."""
    family = family_of(address)
    level, option = MTU_DISCOVERY[family]

    def send() -> bool:
        with socket.socket(family.socket_family, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(level, option, IP_PMTUDISC_DO)
            sender.connect((address, 9))
            ends = time.monotonic() + 1.0
            try:
                while time.monotonic() < ends:
                    sender.send(bytes(NARROW + 20))
                    time.sleep(0.1)
            except OSError:  # EMSGSIZE, or refused by a host that got it
                return True
            return False

    return inside(watched.world.namespace("caller"), send)


def breaks(watched: WatchedNode, scene: Scene) -> bool:
    if not scene.breaks:
        for member in ("caller", NODE):
            for family in ("-4", "-6"):
                watched.world.run(member, ["ip", family, "route", "flush", "cache"])
        return not any(hears_of_long_packets(watched, address) for address in watched.world["far-0"].addresses)
    number = [*PODS].index(scene.breaks) + 1
    return not any(works(watched, (scene.client, address, Protocol.TCP)) for address in cluster_ips(number))


@pytest.mark.parametrize("scene", [pytest.param(one, id=name) for name, one in SCENES.items()])
def test_a_fault_is_a_problem_until_it_is_cured(watched: WatchedNode, scene: Scene) -> None:
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
    watched.world.run(NODE, ["sh", "-ec", scene.plant])
    try:
        assert breaks(watched, scene)
        line = appears(watched, scene.reason, ALERTS[scene.reason])
        assert line.startswith("not healthy: ")
        found = problems(watched)
        for text in scene.says:
            assert placed(watched, text) in found, found
    finally:
        watched.world.run(NODE, ["sh", "-c", scene.cure])
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
    assert not breaks(watched, scene)


def test_a_fault_that_was_there_before_the_agent(watched: WatchedNode) -> None:
    assert watched.agent is not None
    watched.agent.stop()
    for scene in SCENES.values():
        if scene.reason == LOST or scene.client == NODE:
            watched.world.run(NODE, ["sh", "-ec", scene.plant.replace("inet guard", f"inet guard{scene.reason}")])
    watched.start()
    try:
        for reason in (STOPPED, LOST):
            appears(watched, reason, ALERTS[reason])
    finally:
        for reason in (STOPPED, LOST):
            watched.world.run(NODE, ["nft", "delete", "table", "inet", f"guard{reason}"])
        watched.world.run(NODE, ["sh", "-c", width("eth0", USUAL)])
    wait_for(lambda: is_healthy(watched), lambda: problems(watched))
