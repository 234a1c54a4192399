"""An interface of the node that takes shorter packets than another, and a rule that keeps the node from telling senders so.

Short packets pass and long ones never do: the first line of a trace names the interface and the rule.
"""

import fcntl
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.lab.net.topology import POD_BRIDGE
from nodeagent.model.addresses import Family
from tests.harness.cluster import NODE, Cluster, cluster_ips, of_family
from tests.harness.objects import make_service, make_slices
from tests.netns.trace.planting import by_shell, check_line, first_line, program_again

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

WIDTH, USUAL, LONG = 1400, 1500, 20000
TALKING_PORT = 8090
TALK = cluster_ips(9)
NEAR = ("198.51.100.5", "2001:db8:100::5")
PATIENCE_SECONDS, HUNG_SECONDS = 10.0, 2.0
SERVER = f"""
import socket
with socket.create_server(("::", {TALKING_PORT}), family=socket.AF_INET6, dualstack_ipv6=True) as waiting:
    print("waits", flush=True)
    while True:
        connection, _ = waiting.accept()
        with connection:
            connection.sendall(bytes({LONG}))
            connection.settimeout({PATIENCE_SECONDS})
            try:
                while connection.recv(65536):
                    pass
            except OSError:
                pass
"""
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
HOOKED = "table inet guard {{ chain f {{ type filter hook {} priority 0; {} }}; }}"
ERRORS = "icmp type destination-unreachable icmp code frag-needed drop; icmpv6 type packet-too-big drop;"
GONE = "nft delete table inet guard"
TELLERS = [
    pytest.param(f"nft '{HOOKED.format('output', ERRORS)}'", GONE, "output: inet guard, chain f: icmp", id="nft"),
    pytest.param(
        f"nft '{HOOKED.format('postrouting', 'meta l4proto { icmp, icmpv6 } drop;')}'", GONE,
        "postrouting: inet guard, chain f: meta l4proto", id="all of ICMP",
    ),
    pytest.param(
        "iptables -A OUTPUT -p icmp --icmp-type fragmentation-needed -j DROP; "
        "ip6tables -A OUTPUT -p icmpv6 --icmpv6-type packet-too-big -j DROP",
        "nft delete table ip filter; nft delete table ip6 filter", "chain OUTPUT: ", id="iptables",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def talking(node: Cluster) -> Cluster:
    """Services that send much to who connects, and take whatever they are sent: one elsewhere, and one here for outside."""
    world = node.world
    for pod in ("far-0", "web-0"):
        world.start(pod, [sys.executable, "-c", SERVER]).wait_for_line("waits")
    near = make_service("near", *cluster_ips(10), load_balancer_ips=NEAR)
    node.manifests.put(*make_slices(near, [(world["web-0"].addresses, NODE)], target_port=TALKING_PORT), near)
    service = make_service("talk", *TALK)
    node.manifests.put(*make_slices(service, [(world["far-0"].addresses, "node-b")], target_port=TALKING_PORT), service)
    program_again(node)
    return node


@contextmanager
def narrow(node: Cluster, interface: str) -> Iterator[None]:
    """An interface of the node that takes shorter packets; nobody remembers the width of a way before or after."""
    world = node.world

    def forget() -> None:
        for member in ("caller", "far-0", "web-0", "outside", NODE):
            world.run(member, ["ip", "-4", "route", "flush", "cache"])
            world.run(member, ["ip", "-6", "route", "flush", "cache"])

    with by_shell(f"ip link set {interface} mtu {WIDTH}", f"ip link set {interface} mtu {USUAL}")(node):
        forget()
        try:
            yield
        finally:
            forget()


def exchanged(node: Cluster, address: str, seconds: float, client_name: str = "caller") -> tuple[bool, bool]:
    """Whether what the client sends in long packets arrives, and whether the long answer does."""

    def talk() -> tuple[bool, bool]:
        with socket.create_connection((address, 80), timeout=PATIENCE_SECONDS) as client:
            client.sendall(bytes(LONG))
            client.settimeout(0.1)
            got, ends = 0, time.monotonic() + seconds
            while (waiting := not_acknowledged(client) > 0) or got < LONG:
                if time.monotonic() > ends:
                    break
                try:
                    got += len(client.recv(LONG))
                except TimeoutError:
                    continue
            return not waiting, got == LONG

    return inside(node.world.namespace(client_name), talk)


def not_acknowledged(client: socket.socket) -> int:
    return int(struct.unpack("=i", fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)))[0])


@FAMILIES
@pytest.mark.parametrize(("script", "undo", "says"), TELLERS)
def test_a_client_that_does_not_learn_of_the_narrow_path_out(
    talking: Cluster, script: str, undo: str, says: str, family: Family
) -> None:
    address = of_family(family, TALK)
    connection = ("caller", address, "tcp")
    client = talking.world["caller"].address(family)
    with narrow(talking, "eth0"):
        assert exchanged(talking, address, PATIENCE_SECONDS) == (True, True)
        assert "bytes are lost" not in first_line(talking.world, *connection)[0]
        assert check_line(talking.world) == "healthy"
    with narrow(talking, "eth0"), by_shell(script, undo)(talking):
        line, code = first_line(talking.world, *connection)
        doubt = line.partition("; as far as is known: ")[2]
        assert f"packets of {client} above 1400 bytes are lost: eth0 takes no longer ones ({POD_BRIDGE}: 1500)" in doubt
        assert says in doubt
        assert code == 0
        shut = check_line(talking.world)
        assert shut.startswith("not healthy: IPv4 connections, because from pods of this node (asked for ")
        assert f" above 1400 bytes are lost: eth0 takes no longer ones ({POD_BRIDGE}: 1500)" in shut
        assert exchanged(talking, address, HUNG_SECONDS) == (False, True)
    with by_shell(script, undo)(talking):
        assert "bytes are lost" not in first_line(talking.world, *connection)[0]
        assert exchanged(talking, address, PATIENCE_SECONDS) == (True, True)


@FAMILIES
def test_an_endpoint_that_does_not_learn_of_the_narrow_path_to_the_client(talking: Cluster, family: Family) -> None:
    address = of_family(family, NEAR)
    endpoint = talking.world["web-0"].address(family)
    silent = by_shell(f"nft '{HOOKED.format('output', ERRORS)}'", GONE)
    with narrow(talking, "eth0"):
        assert exchanged(talking, address, PATIENCE_SECONDS, "outside") == (True, True)
    with narrow(talking, "eth0"), silent(talking):
        line, _ = first_line(talking.world, "outside", address, "tcp")
        assert (
            f"packets of {endpoint} above 1400 bytes are lost: eth0 takes no longer ones ({POD_BRIDGE}: 1500)" in line
        )
        assert exchanged(talking, address, HUNG_SECONDS, "outside") == (True, False)


@FAMILIES
def test_a_client_that_is_as_narrow_as_its_link_need_not_be_feared_for(talking: Cluster, family: Family) -> None:
    address = of_family(family, TALK)
    silent = by_shell(f"nft '{HOOKED.format('output', ERRORS)}'", GONE)
    pod = ["ip", "link", "set", "eth0", "mtu"]
    with narrow(talking, "caller"), silent(talking):
        talking.world.run("caller", [*pod, str(WIDTH)])
        try:
            assert "bytes are lost" not in first_line(talking.world, "caller", address, "tcp")[0]
            assert exchanged(talking, address, PATIENCE_SECONDS) == (True, True)
        finally:
            talking.world.run("caller", [*pod, str(USUAL)])


CLAMPS = [
    pytest.param(
        "iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
        "nft delete table ip mangle", Family.IPV4, id="iptables",
    ),
    pytest.param(
        "nft 'table inet clamp { chain f { type filter hook forward priority 0; tcp flags syn tcp option maxseg size set rt mtu; }; }'",
        "nft delete table inet clamp", Family.IPV6, id="nft",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("script", "undo", "family"), CLAMPS)
def test_a_sender_of_short_segments_is_not_affected(talking: Cluster, script: str, undo: str, family: Family) -> None:
    address = of_family(family, TALK)
    silent = by_shell(f"nft '{HOOKED.format('output', ERRORS)}'", GONE)
    with narrow(talking, "eth0"), silent(talking), by_shell(script, undo)(talking):
        assert "bytes are lost" not in first_line(talking.world, "caller", address, "tcp")[0]
        assert exchanged(talking, address, PATIENCE_SECONDS) == (True, True)


def test_a_firewall_that_lets_errors_of_connections_out(talking: Cluster) -> None:
    address = of_family(Family.IPV4, TALK)
    rules = "ct state established,related accept; meta l4proto icmp drop;"
    with narrow(talking, "eth0"), by_shell(f"nft '{HOOKED.format('output', rules)}'", GONE)(talking):
        assert "bytes are lost" not in first_line(talking.world, "caller", address, "tcp")[0]
        assert exchanged(talking, address, PATIENCE_SECONDS) == (True, True)
