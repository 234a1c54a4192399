"""A priority that a program of the node has set (SO_PRIORITY): what of it leaves the node."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.model.addresses import Protocol
from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import service_port
from tests.harness.worlds.world import World

SERVICE = cluster_ips(1)
ANOTHERS, PACKETS = "192.0.2.9", 5
SEND = f"""
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 5)
for _ in range({PACKETS}):
    sender.sendto(b"?", (sys.argv[1], 9))
"""
"""One flow that nobody answers."""

RULES = f"""
table ip another {{
  chain output {{
    type nat hook output priority -100
    ip daddr {ANOTHERS} udp dport 9 dnat to 10.244.2.10:8080
  }}
}}
table ip leaving {{
  chain leaving {{
    type filter hook postrouting priority 300
    oifname != "lo" meta l4proto udp meta priority 0:5 counter comment "kept"
    oifname != "lo" meta l4proto udp meta priority none counter comment "lost"
    oifname != "lo" meta l4proto udp meta priority != {{ none, 0:5 }} counter comment "ours"
  }}
  chain answers {{
    type filter hook input priority 300
    meta l4proto icmp drop
  }}
}}
"""


@pytest.mark.parametrize(
    ("address", "affinity", "lost"),
    [
        pytest.param(SERVICE[0], "None", 1, id="to a service of ours"),
        pytest.param(SERVICE[0], "ClientIP", 1, id="to a service of ours with affinity"),
        pytest.param(ANOTHERS, "None", 0, id="to an address that others translate"),
        pytest.param(ANOTHERS, "ClientIP", 1, id="to an address that others translate, a service of ours has affinity"),
        pytest.param("10.244.2.10", "ClientIP", 0, id="to a pod"),
    ],
)
def test_only_the_first_packet_of_a_translated_flow_loses_it(
    build_world: Callable[[], World], tmp_path: Path, address: str, affinity: str, lost: int
) -> None:
    cluster = Cluster(build_world(), tmp_path)
    discard = (service_port(9, Protocol.UDP, name="discard"),)
    cluster.expose("sink", *SERVICE, pods=["far-0"], ports=discard, spec=ServiceSpec(session_affinity=affinity))
    cluster.start_agent(*WITH_POD_CIDRS)
    cluster.world.nft(NODE, RULES)

    cluster.world.run(NODE, [sys.executable, "-c", SEND, address])

    text = cluster.world.nft(NODE, "list table ip leaving")
    seen = {name: int(number) for number, name in re.findall(r'packets (\d+) bytes \d+ comment "(\w+)"', text)}
    assert seen == {"kept": PACKETS - lost, "lost": lost, "ours": 0}
