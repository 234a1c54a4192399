"""Pods as ports of a bridge of their node, as many network plugins have them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeagent.lab.net.world import World

BRIDGE = "cni0"
GATEWAYS = ("10.244.1.1", "fd00:244:1::1")
"""The bridge's addresses, which are the pods' gateways and in the range of the pods."""
NEEDS_BR_NETFILTER = pytest.mark.skipif(not Path("/proc/sys/net/bridge").exists(), reason="br_netfilter is not loaded")


def put_on_one_bridge(world: World, node: str, pods: Sequence[str]) -> None:
    """Makes the node's ends of the pods' links ports of one bridge, in hairpin mode. The pods reach each other directly."""
    v4, v6 = GATEWAYS
    made = (
        f"ip link add {BRIDGE} type bridge mcast_snooping 0; ip addr add {v4}/24 dev {BRIDGE}; "
        f"ip addr add {v6}/64 dev {BRIDGE} nodad; ip link set {BRIDGE} up"
    )
    world.run(node, ["sh", "-ec", made])
    for pod in pods:
        joined = (
            f"ip addr flush dev {pod} scope global; ip -4 route flush dev {pod}; ip -6 route flush dev {pod}; "
            f"ip link set {pod} master {BRIDGE}; bridge link set dev {pod} hairpin on"
        )
        world.run(node, ["sh", "-ec", joined])
        direct = "ip route add 10.244.1.0/24 dev eth0; ip -6 route add fd00:244:1::/64 dev eth0; ip neigh flush all"
        world.run(pod, ["sh", "-ec", direct])
