"""Power of a node that fails and comes back."""

from collections.abc import Iterator
from typing import Protocol

from nodeagent.lab.net import bridge_wiring, pod_wiring, wiring
from nodeagent.lab.net.member import Member
from nodeagent.lab.net.network_namespaces import remove_namespace, run_ip, write_sysctls
from nodeagent.lab.net.topology import UNDERLAY, Node, Topology
from nodeagent.lab.net.world import World


class Wiring(Protocol):
    """How hosts are joined: the modules `routed_wiring` (a router with host routes) and `bridge_wiring` of the lab."""

    def plan(self, topology: Topology, namespace_of: pod_wiring.NamespaceOf, /) -> list[wiring.Step]: ...

    def underlay_side(self, node: Node, namespace_of: pod_wiring.NamespaceOf, /) -> Iterator[str]: ...


def cut_power(world: World, name: str) -> None:
    """Removes a node with everything that its kernel knew: links, rules, connections, sysctls, and the programs in
    its namespace."""
    member = world._members[name]
    # The kernel removes a namespace some time after its name: both ends of a link go with either.
    run_ip(["-n", world._namespaces[UNDERLAY]], [f"link del {name}"])
    for pod in world._nodes[name].pods:
        run_ip(["-n", world._namespaces[pod.name]], ["link del eth0"])
    remove_namespace(world._namespaces[name])
    member.close()
    member.wait()


def give_power(world: World, name: str, joined_by: Wiring = bridge_wiring) -> Member:
    """Brings back a node whose power was cut, joined to the others and to its pods, with nothing else."""
    node = world._nodes[name]
    world._create([name])
    world._members[name] = world._member(name, node.addresses)
    bridged = pod_wiring.BRIDGE_SETTINGS if node.pod_bridge else {}
    write_sysctls(world._namespaces[name], wiring.QUIET | wiring.FORWARDING | bridged)
    side = joined_by.underlay_side(node, world._namespaces.__getitem__)
    run_ip(["-n", world._namespaces[UNDERLAY]], tuple(side))
    members = {name, *(pod.name for pod in node.pods)}
    for step in joined_by.plan(world.topology, world._namespaces.__getitem__):
        if step.member in members:
            world._take(step)
    return world._members[name]
