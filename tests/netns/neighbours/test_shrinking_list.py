"""A list of endpoints that becomes shorter lets no connection through untranslated.

Which list a frontend has and who is in it are two lookups, and a commit may fall between them. The first packets of
many flows are sent meanwhile; what arrives at the node's own sockets was not translated.
"""

import re
import sys
from pathlib import Path

import pytest

from nodeagent.model.addresses import Family
from tests.harness.cluster import NODE, cluster_ips, of_family
from tests.harness.effort import examples
from tests.harness.worlds.world import World

HERE = Path(__file__).parent
SERVICE = cluster_ips(1)
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PORT = 1
FLOWS = examples(20_000)
SHRINKS = examples(100)
"""Each test goes on until it saw as many of both."""

COUNTING = f"""
table inet counting {{
  chain delivered {{
    type filter hook input priority 300
    udp dport {PORT} counter drop comment "untranslated"
  }}
  chain forwarded {{
    type filter hook forward priority 300
    ct status dnat meta l4proto udp counter drop comment "translated"
    meta l4proto udp counter drop comment "elsewhere"
  }}
}}
"""
"""Where packets end. They are never confirmed, so that every packet is the first of its flow, and none is answered."""


@pytest.fixture(scope="module")
def node(shared_world: World) -> World:
    """A world whose node-a has the addresses of the service."""
    lines = ["link add held type bridge", "link set held up"]
    lines += [f"addr add {address}/{128 if ':' in address else 32} dev held" for address in SERVICE]
    shared_world.run(NODE, ["ip", "-batch", "-"], stdin="\n".join(lines))
    return shared_world


def send(world: World, address: str, count: int) -> int:
    """Send the first packets of so many flows from a pod; how many were sent."""
    argv = [sys.executable, str(HERE / "datagram_sender.py"), str(count), address, str(PORT)]
    sent, _ = world.run("caller", argv, timeout=300).stdout.split()
    return int(sent)


def counted(world: World) -> dict[str, int]:
    """Packets by what became of them, and the counting at its beginning again."""
    text = world.nft(NODE, "list table inet counting")
    world.nft(NODE, "delete table inet counting")
    return {name: int(packets) for packets, name in re.findall(r'packets (\d+) bytes \d+ drop comment "(\w+)"', text)}


def flows_while_shrinking(world: World, ownership: str, family: Family, count: int) -> tuple[int, dict[str, int]]:
    """How often the list shrank while so many flows began, and what became of the flows."""
    world.nft(NODE, COUNTING)
    endpoint = world["web-0"].address(family)
    shrinking = world.start(NODE, [sys.executable, str(HERE / "shrinking_lists.py"), ownership, endpoint])
    shrinking.wait_for_line("ready")
    send(world, of_family(family, SERVICE), count)
    shrinking.stop()
    shrunk = int(shrinking.last_words().removeprefix("shrank "))
    world.nft(NODE, f"delete table {'ip' if family is Family.IPV4 else 'ip6'} nodeagent")
    return shrunk, counted(world)


@FAMILIES
@pytest.mark.parametrize("ownership", ["plain", "owned"])
def test_no_flow_is_let_through_untranslated(node: World, ownership: str, family: Family) -> None:
    shrunk = flows = 0
    while flows < FLOWS or shrunk < SHRINKS:
        more, became = flows_while_shrinking(node, ownership, family, FLOWS)
        assert became == {"untranslated": 0, "translated": FLOWS, "elsewhere": 0}
        shrunk, flows = shrunk + more, flows + FLOWS
    print(f"{flows} flows, {shrunk} times shorter")


@FAMILIES
def test_the_counting_sees_what_is_not_translated(node: World, family: Family) -> None:
    """The control: the same packets with nobody's rules, for an address that the node has."""
    node.nft(NODE, COUNTING)

    send(node, of_family(family, SERVICE), 1000)

    assert counted(node) == {"untranslated": 1000, "translated": 0, "elsewhere": 0}
