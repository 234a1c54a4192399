"""docs/semantics.md §3: slices to endpoint list. Numbers in the ids are items there."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import EndpointSlice
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.service_endpoints import collect_endpoints

SliceBuilder = Callable[..., EndpointSlice]

TERMINATING = {"ready": False, "serving": True, "terminating": True}


def listed(slices: list[EndpointSlice], context: Context, name: str = "") -> dict[str, set[str]]:
    """``address:port`` of every endpoint of the TCP port of this name, by family."""
    found = collect_endpoints(slices, context, [])
    return {
        family.value: {f"{c.backend.address}:{c.backend.port}" for c in candidates}
        for (family, port, protocol), candidates in found.items()
        if port == name and protocol is Protocol.TCP
    }


def problems_of(slices: list[EndpointSlice], context: Context) -> list[Problem]:
    problems: list[Problem] = []
    collect_endpoints(slices, context, problems)
    return problems


@pytest.mark.parametrize(
    ("family", "address", "expected"),
    [
        pytest.param("IPv4", "10.0.0.1", {"IPv4": {"10.0.0.1:8080"}}, id="19-ipv4"),
        pytest.param("IPv6", "fd00::1", {"IPv6": {"fd00::1:8080"}}, id="19-ipv6"),
        pytest.param("FQDN", "example.org", {}, id="19-fqdn-is-ignored"),
        pytest.param("IPv4", "010.00.0.001", {"IPv4": {"10.0.0.1:8080"}}, id="21-leading-zeros-are-decimal"),
        pytest.param("IPv6", "FD00:0:0::0001", {"IPv6": {"fd00::1:8080"}}, id="21-ipv6-in-canonical-text"),
    ],
)
def test_an_address_counts_in_the_family_of_its_slice(
    family: str, address: str, expected: dict[str, set[str]], endpoint_slice: SliceBuilder, context: Context
) -> None:
    assert listed([endpoint_slice(address, family=family)], context) == expected


@pytest.mark.parametrize(
    ("ports", "name", "expected"),
    [
        pytest.param([{"name": "http", "port": 1}], "http", {"10.0.0.1:1"}, id="20-by-name"),
        pytest.param([{"name": "", "port": 1}], "", {"10.0.0.1:1"}, id="20-unnamed-is-the-empty-name"),
        pytest.param([{"port": 1}], "", None, id="20-nil-name-is-skipped"),
        pytest.param([{"name": ""}], "", None, id="20-nil-port-is-skipped"),
        pytest.param([{"name": "", "port": 0}], "", None, id="20-port-zero-is-skipped"),
        pytest.param([{"name": "", "port": 1, "protocol": "UDP"}], "", None, id="20-by-protocol"),
        pytest.param([{"name": "", "port": 1, "protocol": None}], "", {"10.0.0.1:1"}, id="20-nil-protocol-is-TCP"),
        pytest.param(
            [{"name": "", "port": 1}, {"name": "", "port": 2}], "", {"10.0.0.1:1", "10.0.0.1:2"}, id="22-two-ports"
        ),
    ],
)
def test_slice_ports_are_matched_by_name_and_protocol(
    ports: Any, name: str, expected: set[str] | None, endpoint_slice: SliceBuilder, context: Context
) -> None:
    assert listed([endpoint_slice("10.0.0.1", ports=ports)], context, name).get("IPv4") == expected


def test_21_only_the_first_address_of_an_endpoint_is_used(endpoint_slice: SliceBuilder, context: Context) -> None:
    some = endpoint_slice({"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": []}, {})
    assert listed([some], context) == {"IPv4": {"10.0.0.1:8080"}}


def test_23_the_slices_of_a_service_are_one_list(endpoint_slice: SliceBuilder, context: Context) -> None:
    slices = [
        endpoint_slice("10.0.0.2", "10.0.0.1", name="a"),
        endpoint_slice("10.0.0.3", name="b"),
        endpoint_slice("10.0.0.1", name="c", ports=[{"name": "", "port": 9090}]),
    ]
    assert listed(slices, context) == {"IPv4": {"10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.1:9090"}}


@pytest.mark.parametrize("reverse", [False, True])
def test_23_of_two_entries_for_one_endpoint_the_non_terminating_one_counts(
    reverse: bool, endpoint_slice: SliceBuilder, context: Context
) -> None:
    slices = [
        endpoint_slice({"addresses": ["10.0.0.1"], "conditions": TERMINATING}, name="a"),
        endpoint_slice({"addresses": ["10.0.0.1"], "conditions": {"ready": False}}, name="b"),
    ]
    found = collect_endpoints(slices[::-1] if reverse else slices, context, [])
    (candidate,) = found[Family.IPV4, "", Protocol.TCP]
    assert (candidate.ready, candidate.terminating) == (False, False)


@pytest.mark.parametrize(
    ("node", "local"),
    [
        pytest.param("10.0.0.1@here", True, id="24-this-node"),
        pytest.param("10.0.0.1@there", False, id="24-another-node"),
        pytest.param("10.0.0.1", False, id="24-no-node-name"),
    ],
)
def test_an_endpoint_is_local_by_node_name(
    node: str, local: bool, endpoint_slice: SliceBuilder, context: Context
) -> None:
    found = collect_endpoints([endpoint_slice(node)], context, [])
    assert [candidate.backend.local for candidate in found[Family.IPV4, "", Protocol.TCP]] == [local]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param(None, (True, True, False), id="25-nothing-said"),
        pytest.param({}, (True, True, False), id="25-empty"),
        pytest.param({"ready": False}, (False, True, False), id="25-serving-does-not-follow-ready"),
        pytest.param({"ready": False, "terminating": True}, (False, True, True), id="25-usable-terminating"),
        pytest.param({"serving": False}, (True, False, False), id="25-ready-without-serving"),
        pytest.param(
            {"ready": True, "serving": False, "terminating": True}, (True, False, True), id="25-publish-not-ready"
        ),
    ],
)
def test_conditions_have_their_own_defaults(
    conditions: Any, expected: tuple[bool, bool, bool], endpoint_slice: SliceBuilder, context: Context
) -> None:
    found = collect_endpoints([endpoint_slice({"addresses": ["10.0.0.1"], "conditions": conditions})], context, [])
    (candidate,) = found[Family.IPV4, "", Protocol.TCP]
    assert (candidate.ready, candidate.serving, candidate.terminating) == expected


@pytest.mark.parametrize(
    ("family", "address", "why"),
    [
        pytest.param("IPv4", "0.0.0.0", "unspecified", id="16-unspecified"),
        pytest.param("IPv4", "127.0.0.1", "loopback", id="16-loopback"),
        pytest.param("IPv4", "169.254.169.254", "link-local", id="16-link-local"),
        pytest.param("IPv4", "224.0.0.1", "multicast", id="16-multicast"),
        pytest.param("IPv4", "239.1.2.3", "multicast", id="16-administrative-multicast"),
        pytest.param("IPv6", "::", "unspecified", id="16-unspecified-v6"),
        pytest.param("IPv6", "::1", "loopback", id="16-loopback-v6"),
        pytest.param("IPv6", "fe80::1", "link-local", id="16-link-local-v6"),
        pytest.param("IPv6", "febf::1", "link-local", id="16-last-link-local-v6"),
        pytest.param("IPv6", "ff02::1", "multicast", id="16-multicast-v6"),
        pytest.param("IPv6", "fe80::1%eth0", "not an IP address", id="16-zone"),
        pytest.param("IPv4", "example.org", "not an IP address", id="a-name"),
        pytest.param("IPv4", "1" * 5000 + ".0.0.1", "not an IP address", id="endless-octet"),
        pytest.param("IPv4", "", "not an IP address", id="blank"),
        pytest.param("IPv4", "10.0.0.2,10.0.0.3", "not an IP address", id="two-in-one"),
        pytest.param("IPv4", "fd00::1", "not IPv4", id="other-family"),
        pytest.param("IPv6", "::ffff:10.0.0.1", "not IPv6", id="mapped-ipv4"),
    ],
)
def test_an_unusable_endpoint_is_left_out_and_reported_and_the_others_stay(
    family: str, address: str, why: str, endpoint_slice: SliceBuilder, context: Context
) -> None:
    good = "10.0.0.1" if family == "IPv4" else "fd00::9"
    slices = [endpoint_slice(address, good, family=family)]
    assert listed(slices, context) == {family: {f"{good}:8080"}}
    (problem,) = problems_of(slices, context)
    assert (problem.subject, problem.reason) == ("EndpointSlice default/web-1", "InvalidAddress")
    assert f"({why})" in problem.detail


@pytest.mark.parametrize(
    ("family", "address"),
    [
        pytest.param("IPv4", "240.0.0.1", id="class-e-is-used-for-pods"),
        pytest.param("IPv4", "0.1.2.3", id="zero-network"),
        pytest.param("IPv4", "223.255.255.255", id="below-multicast"),
        pytest.param("IPv4", "169.253.0.1", id="below-link-local"),
        pytest.param("IPv6", "fe8::1", id="short-group-v6"),
        pytest.param("IPv6", "ff::1", id="short-group-not-multicast-v6"),
        pytest.param("IPv6", "fec0::1", id="above-link-local-v6"),
        pytest.param("IPv6", "::2", id="not-loopback-v6"),
    ],
)
def test_ordinary_addresses_at_the_edges_are_used(
    family: str, address: str, endpoint_slice: SliceBuilder, context: Context
) -> None:
    assert listed([endpoint_slice(address, family=family)], context) == {family: {f"{address}:8080"}}


def test_a_port_number_out_of_range_is_reported(endpoint_slice: SliceBuilder, context: Context) -> None:
    some = endpoint_slice("10.0.0.1", ports=[{"name": "", "port": 70000}, {"name": "", "port": 1, "protocol": "DCCP"}])
    assert [problem.reason for problem in problems_of([some], context)] == ["InvalidPort", "InvalidPort"]


def test_a_family_this_node_does_not_serve_is_ignored(endpoint_slice: SliceBuilder) -> None:
    ipv4_only = Context(node_name="here", families=(Family.IPV4,))
    slices = [endpoint_slice("10.0.0.1"), endpoint_slice("fd00::1", family="IPv6")]
    assert listed(slices, ipv4_only) == {"IPv4": {"10.0.0.1:8080"}}
