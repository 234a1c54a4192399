"""docs/semantics.md 41 and docs/decisions/0012-nodeport-addresses.md: where node ports answer."""

from ipaddress import ip_address, ip_network
from itertools import pairwise

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import ObjectMeta, Service, ServicePort, ServiceSpec
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.node_ports import has_node_port, node_port_cidrs, relevant_problems
from nodeagent.proxy.translate.services import translate_service

NODE = ("192.168.0.2", "2001:db8::2")


def answers(cidrs: tuple[str, ...], address: str) -> bool:
    return any(ip_address(address) in ip_network(cidr) for cidr in cidrs)


@pytest.mark.parametrize(
    ("entries", "node", "expected", "reasons"),
    [
        pytest.param((), NODE, ("192.168.0.2/32", "2001:db8::2/128"), [], id="41-unset-is-primary"),
        pytest.param(("primary",), NODE, ("192.168.0.2/32", "2001:db8::2/128"), [], id="41-primary"),
        pytest.param(("primary",), NODE[1:], ("2001:db8::2/128",), [], id="41-a-family-that-the-node-does-not-have"),
        pytest.param(("primary",), (), (), ["NoNodeAddress", "NoNodeAddress"], id="0012-no-node-address"),
        pytest.param(
            ("192.168.0.0/24", "192.168.0.128/25", "2001:db8::/64"),
            NODE,
            ("192.168.0.0/24", "2001:db8::/64"),
            [],
            id="41-cidrs-merged",
        ),
        pytest.param(("127.0.0.0/8", "::1/128"), NODE, (), ["LoopbackNodePort"] * 2, id="41-loopback-is-never-served"),
        pytest.param(("127.0.0.0/16", "::/0"), NODE[:0], None, ["LoopbackNodePort"], id="41-part-of-loopback"),
        pytest.param(("bogus",), NODE, (), ["InvalidCIDR"], id="0012-nothing-valid-is-nothing"),
        pytest.param(("localhost",), NODE, (), ["InvalidCIDR"], id="0012-localhost-is-nothing"),
        pytest.param(
            ("bogus", "192.168.0.0/24", "fd00::/8"), NODE, ("192.168.0.0/24", "fd00::/8"), ["InvalidCIDR"], id="rest"
        ),
    ],
)
def test_node_ports_answer_at(
    entries: tuple[str, ...], node: tuple[str, ...], expected: tuple[str, ...] | None, reasons: list[str]
) -> None:
    problems: list[Problem] = []
    found = node_port_cidrs(entries, Context(node_name="here", node_addresses=node), problems)
    assert expected is None or found == expected
    assert [problem.reason for problem in problems] == reasons


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(("all",), id="all"),
        pytest.param(("0.0.0.0/0", "::/0"), id="zero-prefixes"),
        pytest.param(("0.0.0.0/0", "192.168.0.0/24", "::/0"), id="41-a-zero-prefix-overrides-the-rest"),
        pytest.param(("0.0.0.0/0",), id="41-a-family-not-mentioned-matches-everything"),
    ],
)
def test_everything_is_everything_but_loopback(entries: tuple[str, ...]) -> None:
    found = node_port_cidrs(entries, Context(node_name="here", node_addresses=NODE), [])
    assert all(answers(found, address) for address in ("1.1.1.1", "126.255.255.255", "128.0.0.1", "255.255.255.255"))
    assert all(answers(found, address) for address in ("::", "::2", "2001:db8::2", "ffff::"))
    assert not any(answers(found, address) for address in ("127.0.0.1", "127.255.255.255", "::1"))


def test_ranges_do_not_overlap_and_are_sorted() -> None:
    found = node_port_cidrs(("all",), Context(node_name="here"), [])
    networks = [ip_network(cidr) for cidr in found]
    for before, after in pairwise(networks):
        assert before.version < after.version or int(before.broadcast_address) < int(after.network_address)


def test_a_family_this_node_does_not_serve_gets_nothing() -> None:
    ipv4 = Context(node_name="here", families=(Family.IPV4,), node_addresses=NODE)
    assert not any(":" in cidr for entries in ((), ("all",), ("::/0",)) for cidr in node_port_cidrs(entries, ipv4, []))


@pytest.mark.parametrize(
    ("node_port", "reasons"),
    [
        pytest.param(0, ["InvalidCIDR"], id="nobody"),
        pytest.param(30080, ["InvalidCIDR", "NoNodeAddress"], id="a-node-port"),
    ],
)
def test_without_node_ports_nobody_misses_an_address(node_port: int, reasons: list[str]) -> None:
    port = ServicePort(80, name="p", node_port=node_port)
    spec = ServiceSpec(type="NodePort" if node_port else "ClusterIP", cluster_ip="10.96.0.1", ports=(port,))
    service = Service(ObjectMeta(name="web", namespace="default"), spec)
    state = translate_service(service, (), Context(node_name="here", families=(Family.IPV4,)))
    assert state.key == ObjectKey("default", "web")
    problems = (Problem("a", "InvalidCIDR", "b"), Problem("configuration", "NoNodeAddress", "c"))
    assert [one.reason for one in relevant_problems(problems, node_ports=has_node_port(state))] == reasons
