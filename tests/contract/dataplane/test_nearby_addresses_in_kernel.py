"""What a node's service ranges must keep clear of, from the kernel: addresses, gateways, names."""

import asyncio
from typing import Any

import pytest

from nodeagent.model.addresses import parse_network
from nodeagent.model.in_use import InUse, describe_overlap
from nodeagent.proxy.dataplane.nearby_addresses import NearbyAddresses, OutboundEndpoint, in_use_here, resolve_here

PATIENCE = 60.0


def cidrs(found: frozenset[InUse], what: str) -> set[str]:
    return {one.cidr for one in found if one.what.startswith(what)}


@pytest.fixture
def node(namespace: Any) -> Any:
    namespace.shell(
        """
        ip link add eth0 type bridge
        ip link set eth0 up
        ip address add 192.168.0.5/24 dev eth0
        ip address add 10.128.0.9/32 dev eth0
        ip address add fd00:1::5/64 dev eth0 nodad
        ip address add 203.0.113.7/32 dev lo
        """
    )
    return namespace


def test_addresses_of_interfaces_count_and_those_of_scope_host_do_not(node: Any) -> None:
    found = node.run(lambda: in_use_here("nodeagent0"))
    assert {"192.168.0.5/32", "10.128.0.9/32", "fd00:1::5/128", "203.0.113.7/32"} <= cidrs(found, "an address")
    assert "127.0.0.1/32" not in cidrs(found, "an address"), "scope host; loopback is refused in any case"
    assert InUse("192.168.0.5/32", "an address of this node, eth0") in found


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        pytest.param("10.96.0.10/32 dev other", True, id="another-interface"),
        pytest.param("10.96.0.10/32 dev other scope host", False, id="ipv4-scope-host"),
        pytest.param("fd00:96::10/128 dev other nodad", True, id="another-interface-ipv6"),
        pytest.param("fd00:96::10/128 dev other preferred_lft 0 nodad", False, id="ipv6-deprecated"),
        pytest.param("10.96.0.10/24 dev other preferred_lft 0", True, id="ipv4-that-runs-out"),
        pytest.param("fd00:96::10/64 dev other preferred_lft 0 nodad", True, id="ipv6-that-runs-out"),
        pytest.param("10.96.0.10/32 dev nodeagent0", False, id="our-interface"),
    ],
)
def test_cluster_ips_on_an_interface_do_not_count(node: Any, options: str, counts: bool) -> None:
    node.shell("for name in other nodeagent0; do ip link add $name type bridge; ip link set $name up; done")
    node.shell(f"ip address add {options}")
    found = cidrs(node.run(lambda: in_use_here("nodeagent0")), "an address")
    assert bool(found & {"10.96.0.10/32", "fd00:96::10/128"}) is counts


@pytest.mark.parametrize(
    ("route", "gateways"),
    [
        pytest.param("ip route add default via 192.168.0.1", {"192.168.0.1/32"}, id="default"),
        pytest.param("ip -6 route add default via fd00:1::1", {"fd00:1::1/128"}, id="ipv6"),
        pytest.param("ip route add 10.244.7.0/24 via 192.168.0.7", {"192.168.0.7/32"}, id="pods-of-another-node"),
        pytest.param("ip route add 10.9.0.0/16 via 192.168.0.9 table 100", {"192.168.0.9/32"}, id="another-table"),
        pytest.param(
            "ip route add 10.8.0.0/16 nexthop via 192.168.0.2 nexthop via 192.168.0.3 weight 2",
            {"192.168.0.2/32", "192.168.0.3/32"},
            id="several",
        ),
        pytest.param("ip route add 10.7.0.0/16 via inet6 fd00:1::7", {"fd00:1::7/128"}, id="via-the-other-family"),
        pytest.param("ip route add 10.6.0.0/16 dev eth0", set(), id="none"),
    ],
)
def test_gateways_of_routes_count(node: Any, route: str, gateways: set[str]) -> None:
    assert cidrs(node.run(lambda: in_use_here("nodeagent0")), "a gateway") == set()
    node.shell(route)
    assert cidrs(node.run(lambda: in_use_here("nodeagent0")), "a gateway") == gateways


def test_reading_nearby_addresses_needs_no_privilege(node: Any) -> None:
    assert node.run_unprivileged(lambda: in_use_here("nodeagent0")) == node.run(lambda: in_use_here("nodeagent0"))


def test_resolved_names_count_and_slow_names_are_added_later(node: Any) -> None:
    async def follow() -> None:
        changed, answered = asyncio.Event(), asyncio.Event()

        async def resolve(name: str) -> frozenset[str]:
            await answered.wait()
            return frozenset({"172.16.0.8"})

        named = [("172.16.0.9", "the API server"), ("api", "the API server")]
        seen = NearbyAddresses(
            changed.set,
            excluding="nodeagent0",
            others=lambda: named,
            look_seconds=0.05,
            name_patience_seconds=0.01,
            resolve=resolve,
        )
        await seen.read()
        assert cidrs(seen.in_use, "the API server") == {"172.16.0.9/32"}
        assert changed.is_set()
        answered.set()
        following = asyncio.create_task(seen.run())
        async with asyncio.timeout(PATIENCE):
            while not cidrs(seen.in_use, "the API server, api"):
                changed.clear()
                await changed.wait()
            changed.clear()
            await (
                await asyncio.create_subprocess_exec("ip", *["route", "add", "default", "via", "192.168.0.1"])
            ).wait()
            await changed.wait()
        assert cidrs(seen.in_use, "a gateway") == {"192.168.0.1/32"}
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    node.run(lambda: asyncio.run(follow()))


def test_own_addresses_and_those_of_the_api_server_are_protected(node: Any) -> None:
    async def look() -> None:
        answers = {"api": {"172.16.0.9", "fd00:9::9"}, "localhost": set[str]()}

        async def resolve(name: str) -> frozenset[str]:
            return frozenset(answers[name])

        ways = (
            OutboundEndpoint("api", 6443),
            OutboundEndpoint("10.0.0.1", 443),
            OutboundEndpoint("localhost", 3128, is_server=False),
        )
        seen = NearbyAddresses(lambda: None, excluding="nodeagent0", ways=ways, resolve=resolve)
        await seen.read()
        expected = {("172.16.0.9", 6443), ("fd00:9::9", 6443), ("10.0.0.1", 443)}
        assert seen.protected.ways == expected
        assert seen.protected.own >= {"192.168.0.5", "10.128.0.9", "fd00:1::5", "203.0.113.7"}
        assert seen.protected.api_ports == {6443, 443}

        answers["api"] = set()
        await seen.read()
        assert seen.protected.ways == expected, "a name server that fails for a moment protects nobody less"
        answers["api"] = {"172.16.0.10"}
        await seen.read()
        assert seen.protected.ways == {("172.16.0.10", 6443), ("10.0.0.1", 443)}

    node.run(lambda: asyncio.run(look()))


@pytest.mark.parametrize(("host", "counts"), [("api", True), ("10.0.0.1", False)])
def test_resolvers_are_protected_where_the_way_is_a_name(node: Any, host: str, counts: bool) -> None:
    async def look() -> None:
        async def resolve(name: str) -> frozenset[str]:
            return frozenset({"172.16.0.9"})

        asked = [("172.16.0.53", 53)]
        seen = NearbyAddresses(
            lambda: None,
            excluding="nodeagent0",
            ways=(OutboundEndpoint(host, 6443),),
            names={("192.168.0.5", 53)},
            resolvers=lambda: asked,
            resolve=resolve,
        )
        await seen.read()
        assert seen.protected.names == {("192.168.0.5", 53)}
        assert seen.protected.resolvers == (set(asked) if counts else set())
        asked[:] = [("172.16.0.54", 53)]
        await seen.read()
        assert seen.protected.resolvers == (set(asked) if counts else set()), "they change"

    node.run(lambda: asyncio.run(look()))


def test_names_are_resolved_as_connections_do_it() -> None:
    found = asyncio.run(resolve_here("localhost"))
    assert found
    assert found <= {"127.0.0.1", "::1"}
    assert asyncio.run(resolve_here("does-not-exist.invalid")) == set()


def test_an_overlap_names_the_addresses(node: Any) -> None:
    node.shell("ip route add default via 192.168.0.1")
    network = parse_network("192.168.0.0/29")
    assert network is not None
    text = describe_overlap(network, node.run(lambda: in_use_here("nodeagent0")))
    assert text == "192.168.0.1/32 (a gateway of this node), 192.168.0.5/32 (an address of this node, eth0)"
