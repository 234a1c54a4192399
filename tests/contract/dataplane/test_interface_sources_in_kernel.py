"""The source that a connection of the node to a ClusterIP gets from the routes of the service interface."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.interface import ServiceInterface
from nodeagent.wire.netlink import local_routes
from nodeagent.wire.netlink.framing import Request, messages
from nodeagent.wire.netlink.local_routes import LocalRoute
from nodeagent.wire.netlink.notifications import Group
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_ROUTE
from nodeagent.wire.netlink.uapi.rtnetlink import RTM_DELROUTE

pytestmark = pytest.mark.kernel

T = TypeVar("T")
FEW = {Family.IPV4: 1, Family.IPV6: 0}
ADDRESS, ROUTE, SINGLE, RANGE = "10.96.0.1", "10.96.0.9", "fd00:96::a", "fd00:96::/108"
VIPS = frozenset((ADDRESS, ROUTE, SINGLE, RANGE, "fd00:96::"))
REACHED = (ADDRESS, ROUTE, SINGLE, "fd00:96::1:1")
A_NODE = """
    ip link set lo up; ip link add out type veth peer name wire; ip link set wire up; ip link set out up
    ip addr add 192.0.2.11/24 dev out; ip addr add 192.0.2.12/24 dev out; ip route add default via 192.0.2.1
    ip -6 addr add 2001:db8::b/64 dev out nodad; ip -6 addr add 2001:db8::c/64 dev out nodad
    ip -6 route add default via 2001:db8::1; sysctl -qw net.ipv4.conf.out.promote_secondaries=1
    until ip -6 route get 2001:db8:9::9 >/dev/null 2>&1; do sleep 0.01; done
    until [ $(ip -6 route show table local dev out | grep -c '^local 2001:db8::') = 2 ]; do sleep 0.01; done
"""
FIRST, SECOND = ("192.0.2.11", "2001:db8::b"), ("192.0.2.12", "2001:db8::c")


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


def sync(namespace: Namespace, interface: ServiceInterface, known_by: tuple[str, ...]) -> None:
    report = namespace.run(lambda: asyncio.run(interface.sync(VIPS, known_by)))
    assert report.problems == ()


def sources(namespace: Namespace) -> list[str]:
    """Which the kernel chooses towards each."""
    ways = [namespace.shell(f"ip route get {address}") for address in REACHED]
    return [way.split(" src ")[1].split()[0] for way in ways]


def shown(addresses: tuple[str, str]) -> list[str]:
    return [addresses[0], addresses[0], addresses[1], addresses[1]]


def test_every_route_has_the_address_by_which_the_node_is_known(namespace: Namespace) -> None:
    namespace.shell(A_NODE)
    interface = ServiceInterface(address_limits=FEW)
    for known_by in (FIRST, SECOND, FIRST):
        sync(namespace, interface, ("203.0.113.1", *known_by))
        assert sources(namespace) == shown(known_by)
    assert len(namespace.shell("ip route show table local proto 110").splitlines()) == 2


def test_a_node_that_is_known_by_none_has_the_address_with_which_it_reaches_others(namespace: Namespace) -> None:
    namespace.shell(A_NODE)
    other = [
        namespace.shell(f"ip route get {to}").split(" src ")[1].split()[0] for to in ("203.0.113.1", "2001:db8:9::9")
    ]
    sync(namespace, ServiceInterface(address_limits=FEW), ())
    assert sources(namespace) == shown((other[0], other[1]))


def test_without_a_node_address_the_cluster_ip_stays_the_source(namespace: Namespace) -> None:
    interface = ServiceInterface(address_limits=FEW)
    sync(namespace, interface, FIRST)
    assert "src" not in namespace.shell(
        "ip route show table local proto 110; ip -6 route show table local proto static"
    )
    namespace.shell(A_NODE)
    sync(namespace, interface, FIRST)
    assert sources(namespace) == shown(FIRST)
    namespace.shell("ip addr flush dev out; ip -6 addr flush dev out")
    sync(namespace, interface, FIRST)
    assert "src" not in namespace.shell(
        "ip route show table local proto 110; ip -6 route show table local proto static"
    )
    assert set(REACHED[:2]) == {
        namespace.shell(f"ip route get {one}").split(" src ")[1].split()[0] for one in REACHED[:2]
    }


def test_routes_of_earlier_versions_are_adopted_without_a_gap(namespace: Namespace) -> None:
    namespace.shell(
        A_NODE + "ip link add nodeagent0 type bridge; ip link set nodeagent0 alias nodeagent addrgenmode none;"
        "ip link set nodeagent0 up arp off; ip addr add 10.96.0.1/32 dev nodeagent0 scope host;"
        "ip route append local 10.96.0.9 dev nodeagent0 table local proto static;"
        "ip route prepend local 10.96.0.1 dev lo table local proto 110;"
        "ip route prepend local 10.96.0.9 dev lo table local proto 110;"
        "ip -6 route append local fd00:96::a dev nodeagent0 table local proto static;"
        "ip -6 route append local fd00:96:: dev nodeagent0 table local proto static;"
        "ip -6 route append fd00:96::/108 dev nodeagent0 table local proto static"
    )

    def adopt() -> list[LocalRoute | None]:
        with NetlinkSocket(NETLINK_ROUTE, Group.IPV4_ROUTES | Group.IPV6_ROUTES) as events:
            asyncio.run(ServiceInterface(address_limits=FEW).sync(VIPS, FIRST))
            gone = []
            while (reported := events.receive_now()) is not None:
                gone += [
                    local_routes.read_route_over_lo(body)
                    for kind, _, _, body in messages(reported)
                    if kind == RTM_DELROUTE
                ]
        return gone

    assert namespace.run(adopt) == [LocalRoute(ADDRESS), LocalRoute(ROUTE)], "only these make place for others"
    assert sources(namespace) == shown(FIRST)


def test_a_restart_writes_nothing_and_cleanup_leaves_nothing(namespace: Namespace) -> None:
    namespace.shell(A_NODE)
    sync(namespace, ServiceInterface(address_limits=FEW), FIRST)
    before = namespace.shell("ip route show table all; ip -6 route show table all")
    again = ServiceInterface(address_limits=FEW)
    changes = namespace.run(lambda: written(lambda: asyncio.run(again.sync(VIPS, FIRST))))
    assert changes == (0, 0)
    assert namespace.shell("ip route show table all; ip -6 route show table all") == before

    namespace.run(lambda: asyncio.run(again.remove()))
    assert not [line for line in namespace.shell("ip route show table local").splitlines() if "10.96." in line]
    assert "fd00:96::" not in namespace.shell("ip -6 route show table local")


def test_an_ipv6_address_that_went_and_came_takes_the_source_along(namespace: Namespace) -> None:
    """The kernel takes it off the routes, and says nothing."""
    namespace.shell(A_NODE)
    interface = ServiceInterface(address_limits=FEW)
    sync(namespace, interface, FIRST)
    namespace.shell("ip -6 addr del 2001:db8::b/64 dev out; ip -6 addr add 2001:db8::b/64 dev out nodad")
    assert "src 2001:db8::b" not in namespace.shell("ip -6 route show table local dev nodeagent0")
    sync(namespace, interface, FIRST)
    assert sources(namespace) == shown(FIRST)


def test_many_cluster_ips_take_two_messages_each(namespace: Namespace) -> None:
    """One makes it local, one is the route over lo with the source; the least is 8 bytes more than without."""
    namespace.shell(A_NODE)
    many = frozenset(f"10.97.{number >> 8}.{number & 255}" for number in range(2000))
    bare = namespace.run(lambda: written(lambda: asyncio.run(ServiceInterface("bare").sync(many, ()))))
    namespace.shell("ip link del bare; ip route flush table local proto 110; ip route flush table local proto static")

    messages, size = namespace.run(lambda: written(lambda: asyncio.run(ServiceInterface().sync(many, FIRST))))
    assert messages == bare[0]
    assert 2 * len(many) <= messages <= 2 * len(many) + 8
    assert size <= 110 * len(many)


def written(work: Callable[[], object]) -> tuple[int, int]:
    """How many messages that change something `work` sends, and their bytes."""
    sent: list[bytes] = []
    performed = NetlinkSocket._perform_batch

    def count(socket: NetlinkSocket, requests: Mapping[int, Request]) -> object:
        sent.extend(body for _, _, body in requests.values())
        return performed(socket, requests)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NetlinkSocket, "_perform_batch", count)
        work()
    return len(sent), sum(16 + len(body) for body in sent)
