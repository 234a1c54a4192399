"""A firewall that closes `forward`, on a node whose pods are ports of a bridge: with br_netfilter it is asked about the packets by
which two pods find each other's hardware address, too. Of IPv6 these are packets of IP (neighbour discovery).

So no two pods of the node reach each other by IPv6, with a Service or without, until the bridge is let through.
"""

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.topology import POD_BRIDGE
from nodeagent.model.addresses import Family
from tests.harness.cluster import NODE, TARGET_PORT, of_family
from tests.harness.warm_start import AGENT
from tests.harness.worlds.topology import POD_CIDRS

from .scene import AGENT_FIRST, SHOP, Neighbour, Scene, Setting

OPENED = "firewall-cmd --permanent --zone=trusted --add-interface=cni0"
FIREWALLD, UFW = Neighbour("firewalld.nft"), Neighbour("ufw.iptables", "iptables-nft")


def to_pods(scene: Scene, neighbour: Neighbour) -> None:
    """What these firewalls want wherever pods are: `ufw route allow to PODS`; firewalld lets through what is translated."""
    if neighbour is UFW:
        for program, prefix, cidr in zip(("iptables-nft", "ip6tables-nft"), ("ufw", "ufw6"), POD_CIDRS, strict=True):
            scene.world.run(NODE, [program, "-A", f"{prefix}-user-forward", "-d", cidr, "-j", "ACCEPT"])


def within_the_bridge(scene: Scene, neighbour: Neighbour) -> None:
    """`ufw route allow in on cni0 out on cni0`, and what `firewall-cmd --zone=trusted --add-interface=cni0` comes to."""
    if neighbour is UFW:
        ports = ["-i", POD_BRIDGE, "-o", POD_BRIDGE, "-j", "ACCEPT"]
        scene.world.run(NODE, ["ip6tables-nft", "-A", "ufw6-user-forward", *ports])
    else:
        scene.world.nft(NODE, f'insert rule inet firewalld filter_FORWARD_ZONES iifname "{POD_BRIDGE}" accept')


@pytest.mark.parametrize("beside", [Setting(one, AGENT_FIRST) for one in (FIREWALLD, UFW)], indirect=True, ids=str)
def test_ipv6_between_pods_of_a_bridge_needs_the_bridge_let_through(
    beside: Scene, request: pytest.FixtureRequest
) -> None:
    neighbour = request.node.callspec.params["beside"].neighbour
    world = beside.world
    to_pods(beside, neighbour)

    def failures(family: Family) -> set[Failure | None]:
        places = [(of_family(family, SHOP), 443), (world["web-0"].address(family), TARGET_PORT)]
        return {world["caller"].ask(*place, timeout=0.5).only.failure for place in places}

    assert world["caller"].ask(of_family(Family.IPV4, SHOP), 443).only.failure is None
    assert None not in failures(Family.IPV6)
    if neighbour is FIREWALLD:
        assert f"does not find {world['caller'].address(Family.IPV6)} behind the bridge" in traced(beside)
        assert OPENED in traced(beside)
        assert OPENED in world.run(NODE, [*AGENT, "check"], check=False).stdout
    within_the_bridge(beside, neighbour)
    beside.agent.wait_until(lambda: failures(Family.IPV6) == {None}, "neighbours that know each other")
    assert "does not find" not in traced(beside)


def traced(scene: Scene) -> str:
    """The verdict on a connection of a pod to the Service, by IPv6."""
    place = f"[{of_family(Family.IPV6, SHOP)}]:443"
    command = [*AGENT, "trace", scene.world["caller"].address(Family.IPV6), place]
    return scene.world.run(NODE, command, check=False).stdout.partition("\n")[0]
