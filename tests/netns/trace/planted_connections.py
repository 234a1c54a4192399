"""Connections of one address of the node to one endpoint, written into the connection table as if clients had made them."""

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import Protocol
from nodeagent.wire.netlink.conntrack import create_flow, delete_marked
from nodeagent.wire.netlink.framing import Request
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER
from tests.harness.cluster import NODE, TARGET_PORT
from tests.harness.worlds.world import World
from tests.netns.trace.planting import GATEWAY

BALANCER = "198.51.100.7"
MARK, LIFETIME_SECONDS, BATCH = 0x706F7274, 300, 400
FIRST = 1024


@contextmanager
def connections(world: World, protocol: Protocol, end: int) -> Iterator[None]:
    """The gateway address has one to web-0 on each of its source ports below `end`."""
    to = socket.inet_aton(BALANCER), 80
    endpoint = socket.inet_aton(world["web-0"].address()), TARGET_PORT
    client, gateway = socket.inet_aton("192.0.2.9"), socket.inet_aton(GATEWAY)

    def one(port: int) -> Request:
        answer = endpoint, (gateway, port)
        return create_flow(
            (client, port), to, mark=MARK, seconds=LIFETIME_SECONDS, answer=answer, protocol=int(protocol)
        )

    def fill() -> None:
        wanted = map(one, range(FIRST, end))
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            while batch := list(itertools.islice(wanted, BATCH)):
                netlink.perform(batch)

    def clear() -> None:
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            netlink.perform([delete_marked(MARK)])

    inside(world.namespace(NODE), fill)
    try:
        yield
    finally:
        inside(world.namespace(NODE), clear)
