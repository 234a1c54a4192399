"""The standard world: its members and their addresses."""

from nodeagent.lab.net.topology import POD_BRIDGE, Node, OutsideHost, Pod, Topology

POD_CIDRS = ("10.244.0.0/16", "fd00:244::/32")
SERVICE_CIDRS = ("10.96.0.0/16", "fd00:10:96::/112")
LOAD_BALANCER_CIDRS = ("198.51.100.0/24", "2001:db8:100::/64")
"""Ranges of the standard topology: of its pods, and those that its underlay routes to node-a."""


def pods_of(prefix: str, count: int, first: int = 10, subnet: int = 1) -> tuple[Pod, ...]:
    """Returns `count` dual-stack pods ``prefix-0`` …: 10.244.SUBNET.FIRST and fd00:244:SUBNET::FIRST upwards."""
    return tuple(
        Pod(f"{prefix}-{i}", (f"10.244.{subnet}.{first + i}", f"fd00:244:{subnet}::{first + i:x}"))
        for i in range(count)
    )


def standard_topology(local_pods: int = 3, remote_pods: int = 1, *, pod_bridge: str = POD_BRIDGE) -> Topology:
    """Returns the usual dual-stack world.

    node-a with `web-0` … (servers) and `caller` (a pod that only sends requests), node-b with `far-0` …, and `outside`.
    The underlay routes SERVICE_CIDRS and LOAD_BALANCER_CIDRS to node-a. pod_bridge: of both nodes, or NO_BRIDGE.
    """
    here = Node(
        "node-a",
        ("192.168.0.2", "2001:db8::2"),
        ("10.244.1.1", "fd00:244:1::1"),
        (*pods_of("web", local_pods), Pod("caller", ("10.244.1.200", "fd00:244:1::c8"))),
        (*SERVICE_CIDRS, *LOAD_BALANCER_CIDRS),
        pod_bridge=pod_bridge,
    )
    there = Node(
        "node-b",
        ("192.168.0.3", "2001:db8::3"),
        ("10.244.2.1", "fd00:244:2::1"),
        pods_of("far", remote_pods, subnet=2),
        pod_bridge=pod_bridge,
    )
    return Topology((here, there), (OutsideHost("outside", ("203.0.113.2", "2001:db8:ffff::2")),))
