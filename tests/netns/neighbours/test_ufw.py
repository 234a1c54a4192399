"""ufw, which drops what it is not configured to let through: the policy of INPUT and of FORWARD is DROP.

The node's own connections to services work. Everybody else's are forwarded to a pod (or delivered to a server of the
node) after their destination was rewritten, so it is the endpoint that has to be allowed, not the service's port. With pods
behind a bridge: test_firewalls_beside_bridges.py.
"""

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.topology import NO_BRIDGE
from nodeagent.model.addresses import Family, Protocol
from tests.harness.cluster import NODE, of_family
from tests.harness.worlds.topology import POD_CIDRS

from .scene import HOSTED, NODE_PORT, SHOP, SHOP_NODE_PORT, UNSERVED, Neighbour, Scene, settings

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)
BRIDGE = NO_BRIDGE
UFW = Neighbour("ufw.iptables", "iptables-nft")
BESIDE = pytest.mark.parametrize("beside", settings(UFW), indirect=True, ids=str)
PROGRAMS = {Family.IPV4: ("iptables-nft", "ufw"), Family.IPV6: ("ip6tables-nft", "ufw6")}
"""What loads a rule, and how ufw's chains begin."""


def allow(scene: Scene, family: Family, chain: str, *rule: str) -> None:
    """What `ufw allow` (input) and `ufw route allow` (forward) add."""
    program, prefix = PROGRAMS[family]
    scene.world.run(NODE, [program, "-A", f"{prefix}-user-{chain}", *rule, "-j", "ACCEPT"])


@BESIDE
@PROTOCOLS
@FAMILIES
def test_the_nodes_own_connections_need_no_rule(beside: Scene, family: Family, protocol: Protocol) -> None:
    survey = beside.world[NODE].ask(of_family(family, SHOP), 443, protocol, count=5)

    assert not survey.failures
    assert survey.names.keys() <= {"web-0", "web-1"}


@BESIDE
@FAMILIES
def test_pods_and_clients_need_rules_of_ufw(beside: Scene, family: Family) -> None:
    """Before: nothing but timeouts. `ufw route allow to PODS` for pods, `ufw allow PORT` for servers of the node."""
    world = beside.world
    asked = {
        "a pod, to a ClusterIP": ("caller", of_family(family, SHOP), 443),
        "outside, to a ClusterIP": ("outside", of_family(family, SHOP), 443),
        "outside, to a node port": ("outside", world[NODE].address(family), SHOP_NODE_PORT),
        "a pod, to a server of the node": ("caller", of_family(family, HOSTED), 80),
    }

    def failures() -> dict[str, Failure | None]:
        return {
            what: world[client].ask(address, port, timeout=0.5).only.failure
            for what, (client, address, port) in asked.items()
        }

    assert failures() == dict.fromkeys(asked, Failure.TIMEOUT)
    allow(beside, family, "forward", "-d", POD_CIDRS[list(Family).index(family)])
    assert failures() == dict.fromkeys(asked) | {"a pod, to a server of the node": Failure.TIMEOUT}
    allow(beside, family, "input", "-p", "tcp", "--dport", str(NODE_PORT))
    assert failures() == dict.fromkeys(asked)


@BESIDE
@FAMILIES
def test_a_port_that_the_service_does_not_have_answers_nobody(beside: Scene, family: Family) -> None:
    """Whether ours refuses or ufw drops is a matter of priorities; a daemon listens there, and must not answer."""
    for client in ("caller", "outside", NODE):
        answer = beside.world[client].ask(of_family(family, SHOP), UNSERVED, timeout=0.5).only
        assert answer.failure in {Failure.REFUSED, Failure.TIMEOUT}, client
