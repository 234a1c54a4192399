"""Pods that are ports of a bridge of the node, as many network plugins make them.

Two of them reach each other past the rules of IP unless br_netfilter brings their packets there; and where it does, a pod that is
its own endpoint needs a port that gives frames back.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.addresses import Protocol
from tests.harness.cluster import NODE, TARGET_PORT, Cluster, cluster_ips
from tests.harness.lost_packets import PATIENT
from tests.harness.warm_start import AGENT
from tests.harness.worlds.world import World
from tests.netns.trace.planting import (
    DROP,
    SILENCE_SECONDS,
    WEB,
    WEB6,
    check_line,
    documented,
    first_line,
    first_line_of_strangers,
    program,
    tc_filter,
    works,
    works_again,
)

pytestmark = pytest.mark.kernel

BETWEEN = {"iptables": ("caller", WEB, "tcp"), "ip6tables": ("caller", WEB6, "tcp")}
ALONE = {"iptables": ("web-0", WEB, "tcp"), "ip6tables": ("web-0", WEB6, "tcp")}
FAMILIES = pytest.mark.parametrize("tables", BETWEEN)
SETTINGS = {"iptables": "net.bridge.bridge-nf-call-iptables", "ip6tables": "net.bridge.bridge-nf-call-ip6tables"}
PAST = "are both behind the bridge cni0, which carries the answer past the rules that would translate it back"
NOTHING_BACK = "web-0, a port of the bridge cni0, does not send packets back out (hairpin mode is off)"


@pytest.fixture(scope="module")
def bridged(cluster: Cluster) -> Cluster:
    """Services on a node whose pods are ports of a bridge, each in hairpin mode, and reach each other directly."""
    world = cluster.world
    for protocol in (Protocol.TCP, Protocol.UDP):
        for pod in ("web-0", "web-1", "far-0"):
            world[pod].serve(TARGET_PORT, protocol)
    cluster.expose("both", *cluster_ips(7), pods=("web-0", "web-1"))
    program(cluster)
    return cluster


def shell(world: World, member: str, script: str) -> None:
    world.run(member, ["sh", "-ec", script])


@contextmanager
def planted(world: World, script: str, undo: str) -> Iterator[None]:
    shell(world, NODE, script)
    try:
        yield
    finally:
        shell(world, NODE, undo)


def finds_nothing(world: World) -> None:
    for connection in (*BETWEEN.values(), *ALONE.values()):
        assert works_again(world, *connection)
        line, code = first_line(world, *connection)
        assert (line.partition(":")[0], code, "as far as" in line) == ("arrives", 0, False), line
    assert check_line(world) == "healthy"


@FAMILIES
def test_an_answer_that_the_bridge_carries_past_the_rules(bridged: Cluster, tables: str) -> None:
    world, setting = bridged.world, SETTINGS[tables]
    finds_nothing(world)
    with planted(world, f"sysctl -qw {setting}=0", f"sysctl -qw {setting}=1"):
        client, address, _ = BETWEEN[tables]
        for protocol in ("tcp", "udp"):
            assert not works(world, client, address, protocol, read_with_retries=False)
        line, code = first_line(world, *BETWEEN[tables])
        assert line.startswith("one way: ")
        assert PAST in line
        assert line.endswith(f"; modprobe br_netfilter; sysctl -w {setting}=1")
        assert code == 1
        assert PAST in check_line(world)
        assert works(world, *ALONE[tables], read_with_retries=True)
        assert first_line(world, *ALONE[tables])[1] == 0
    finds_nothing(world)


@pytest.mark.parametrize(
    ("script", "undo", "tables"),
    [
        pytest.param("ip rule add pref 5 to 10.244.1.200 blackhole", "ip rule del pref 5", "iptables", id="IPv4"),
        pytest.param(
            "ip -6 rule add pref 5 to fd00:244:1::c8 blackhole", "ip -6 rule del pref 5", "ip6tables", id="IPv6"
        ),
        pytest.param(
            "sysctl -qw net.ipv6.conf.all.forwarding=0",
            "sysctl -qw net.ipv6.conf.all.forwarding=1",
            "ip6tables",
            id="IPv6, forwarding is off",
        ),
    ],
)
def test_answers_that_a_bridge_carries_back_are_not_routed(
    bridged: Cluster, script: str, undo: str, tables: str
) -> None:
    world = bridged.world
    assert works_again(world, *BETWEEN[tables])
    with planted(world, script, undo):
        assert works(world, *BETWEEN[tables], read_with_retries=True)
        line, code = first_line(world, *BETWEEN[tables])
        assert (line.partition(":")[0], code) == ("arrives", 0), line


@pytest.mark.parametrize(
    ("rule", "fate", "verdict"),
    [
        pytest.param("reject with tcp reset", Failure.TIMEOUT, "dropped", id="reset"),
        pytest.param("reject", Failure.REFUSED, "refused", id="ICMP"),
    ],
)
@FAMILIES
def test_a_reset_of_others_does_not_reach_the_client(
    bridged: Cluster, tables: str, rule: str, fate: Failure, verdict: str
) -> None:
    """The kernel sends it past connection tracking, in the name of the endpoint (nf_send_reset)."""
    world = bridged.world
    client, address, protocol = BETWEEN[tables]
    chain = f"chain f {{ type filter hook forward priority 0; tcp dport {TARGET_PORT} {rule}; }};"
    with planted(world, f"nft 'table inet guard {{ {chain} }}'", "nft delete table inet guard"):
        answer = world[client].ask(address, 80, timeout=SILENCE_SECONDS if fate is Failure.TIMEOUT else PATIENT).only
        assert answer.failure is fate
        assert first_line(world, client, address, protocol)[0].startswith(f"{verdict}: ")


@FAMILIES
def test_a_bridge_with_a_setting_of_its_own(bridged: Cluster, tables: str) -> None:
    world, setting = bridged.world, SETTINGS[tables]
    own = f"ip link set cni0 type bridge nf_call_{tables}"
    with planted(world, f"sysctl -qw {setting}=0; {own} 1", f"sysctl -qw {setting}=1; {own} 0"):
        finds_nothing(world)


@FAMILIES
def test_a_pod_that_is_its_own_endpoint_behind_a_port_that_gives_nothing_back(bridged: Cluster, tables: str) -> None:
    world = bridged.world
    finds_nothing(world)
    with planted(world, "bridge link set dev web-0 hairpin off", "bridge link set dev web-0 hairpin on"):
        assert not works(world, *ALONE[tables], read_with_retries=False)
        line, code = first_line(world, *ALONE[tables])
        assert line.startswith("dropped: ")
        assert NOTHING_BACK in line
        assert line.endswith("; bridge link set dev web-0 hairpin on")
        assert code == 1
        assert NOTHING_BACK in check_line(world)
        assert works(world, *BETWEEN[tables], read_with_retries=True)
        assert first_line(world, *BETWEEN[tables])[1] == 0
    finds_nothing(world)


@FAMILIES
def test_no_port_gives_anything_back_and_the_bridge_has_not_learned_which_one(bridged: Cluster, tables: str) -> None:
    """The control: one port that does may be the pod's."""
    world = bridged.world
    ports = world.run(NODE, ["ls", "/sys/class/net/cni0/brif"]).stdout.split()
    off, on = ("; ".join(f"bridge link set dev {port} hairpin {mode}" for port in ports) for mode in ("off", "on"))
    with planted(world, off, on):
        line, code = first_line_of_strangers(world, *ALONE[tables], lambda line: "no port of the bridge" in line)
        assert line.startswith("dropped: ")
        assert "no port of the bridge cni0 sends packets back out (hairpin mode is off)" in line
        assert line.endswith("; bridge link set dev PORT hairpin on")
        assert code == 1
        assert not works(world, *ALONE[tables], read_with_retries=False)
        shell(world, NODE, "bridge link set dev caller hairpin on")
        assert first_line_of_strangers(world, *ALONE[tables], lambda line: line.startswith("arrives"))[1] == 0
    finds_nothing(world)


@FAMILIES
def test_a_port_need_give_nothing_back_where_the_rules_do_not_see_bridged_packets(
    bridged: Cluster, tables: str
) -> None:
    world, setting = bridged.world, SETTINGS[tables]
    script = f"bridge link set dev web-0 hairpin off; sysctl -qw {setting}=0"
    with planted(world, script, f"bridge link set dev web-0 hairpin on; sysctl -qw {setting}=1"):
        assert works(world, *ALONE[tables], read_with_retries=True)
        assert first_line(world, *ALONE[tables])[1] == 0


@pytest.mark.parametrize(("arguments", "begins"), documented("docs/troubleshooting.md", of_bridges=True))
def test_the_document_says_what_a_trace_says(bridged: Cluster, arguments: list[str], begins: str) -> None:
    off = "bridge link set dev web-0 hairpin off" if "hairpin" in begins else f"sysctl -qw {SETTINGS['iptables']}=0"
    on = f"bridge link set dev web-0 hairpin on; sysctl -qw {SETTINGS['iptables']}=1"
    with planted(bridged.world, off, on):
        done = bridged.world.run(NODE, [*AGENT, *arguments], check=False)
    assert done.stdout.startswith(begins)
    assert done.returncode == 1


@pytest.mark.parametrize(("port", "direction"), [("caller", "ingress"), ("web-0", "egress")])
def test_a_filter_at_a_port_of_the_bridge_is_named(bridged: Cluster, port: str, direction: str) -> None:
    world = bridged.world
    assert works_again(world, "caller", WEB, "tcp")
    with tc_filter(port, direction, DROP)(bridged):
        assert not works(world, "caller", WEB, "tcp", read_with_retries=False)
        said, _ = first_line(world, "caller", WEB, "tcp")
        assert f"as far as is known: the tc filter bpf at {port} ({direction}) may drop or change it" in said
    assert works_again(world, "caller", WEB, "tcp")
    assert "tc filter" not in first_line(world, "caller", WEB, "tcp")[0]
