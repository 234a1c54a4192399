"""docs/semantics.md §8 and docs/decisions/0010-source-ranges.md: who may connect to a load-balancer address."""

from collections.abc import Callable

import msgspec
import pytest

from nodeagent.model.frontend import FrontendKind, ServiceState
from nodeagent.model.objects import Service
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.services import translate_service

ServiceBuilder = Callable[..., Service]


def guarded(service: ServiceBuilder, ranges: list[str], context: Context) -> ServiceState:
    balanced = service(
        type="LoadBalancer",
        clusterIPs=["10.96.0.10", "fd00:96::10"],
        ipFamilies=["IPv4", "IPv6"],
        ingress=["1.2.3.4", "2001:db8:1::4"],
        externalIPs=["192.0.2.1"],
        ports=[{"port": 80, "nodePort": 30080}],
        loadBalancerSourceRanges=ranges,
    )
    return translate_service(balanced, [], context)


def sources(state: ServiceState, address: str) -> tuple[str, ...] | None:
    (frontend,) = [frontend for frontend in state.frontends if frontend.address == address]
    return frontend.allowed_sources


@pytest.mark.parametrize(
    ("ranges", "ipv4", "ipv6", "reasons"),
    [
        pytest.param([], None, None, [], id="no-ranges"),
        pytest.param(["", " "], None, None, [], id="only-blank-ones"),
        pytest.param(
            ["203.0.113.0/25", "2001:db8:a::/48"], ("203.0.113.0/25",), ("2001:db8:a::/48",), [], id="52-each-family"
        ),
        pytest.param([" 203.000.113.7/025 "], ("203.0.113.0/25",), None, ["SourceRangesIneffective"], id="15-sloppy"),
        pytest.param(["203.0.113.0/25"], ("203.0.113.0/25",), None, ["SourceRangesIneffective"], id="52-other-family"),
        pytest.param(["0.0.0.0/0", "::/0"], None, None, [], id="52-zero-prefix-is-everyone"),
        pytest.param(["0.0.0.0/1", "128.0.0.0/1", "::/0"], None, None, [], id="everyone-in-halves"),
        pytest.param(
            ["bogus", "198.51.100.0/24", "2001:db8:a::/48"],
            ("198.51.100.0/24",),
            ("2001:db8:a::/48",),
            ["InvalidCIDR"],
            id="52-invalid-entry",
        ),
        pytest.param(
            ["bogus"],
            None,
            None,
            ["InvalidCIDR", "SourceRangesIneffective", "SourceRangesIneffective"],
            id="52-only-invalid-entries-is-open",
        ),
        pytest.param(
            ["203.0.113.128/25", "203.0.113.0/25", "203.0.113.7/32", "198.51.100.0/24", "::/0"],
            ("198.51.100.0/24", "203.0.113.0/24"),
            None,
            [],
            id="overlaps-are-merged",
        ),
    ],
)
def test_ranges_are_reduced_to_each_family(
    ranges: list[str],
    ipv4: tuple[str, ...] | None,
    ipv6: tuple[str, ...] | None,
    reasons: list[str],
    service: ServiceBuilder,
    context: Context,
) -> None:
    state = guarded(service, ranges, context)
    assert (sources(state, "1.2.3.4"), sources(state, "2001:db8:1::4")) == (ipv4, ipv6)
    assert [problem.reason for problem in state.problems] == reasons


def test_51_only_load_balancer_addresses_are_guarded(service: ServiceBuilder, context: Context) -> None:
    state = guarded(service, ["203.0.113.0/25", "2001:db8:a::/48"], context)
    for frontend in state.frontends:
        assert (frontend.allowed_sources is not None) is (frontend.kind is FrontendKind.LOAD_BALANCER)


@pytest.mark.parametrize(
    ("ranges", "ipv4", "ipv6"),
    [
        pytest.param(
            ["192.168.0.0/24", "2001:db8:a::/48"],
            ("1.2.3.4/32", "192.168.0.0/24"),
            ("2001:db8:a::/48",),
            id="53-node-in-a-range",
        ),
        pytest.param(
            ["203.0.113.0/25", "2001:db8::/64"],
            ("203.0.113.0/25",),
            ("2001:db8::/64", "2001:db8:1::4/128"),
            id="53-node-in-an-ipv6-range",
        ),
    ],
)
def test_where_the_node_may_connect_its_load_balancer_addresses_may_too(
    ranges: list[str], ipv4: tuple[str, ...], ipv6: tuple[str, ...], service: ServiceBuilder, context: Context
) -> None:
    state = guarded(service, ranges, context)
    assert (sources(state, "1.2.3.4"), sources(state, "2001:db8:1::4")) == (ipv4, ipv6)


def test_53_only_the_primary_addresses_of_the_node_count(service: ServiceBuilder, context: Context) -> None:
    unknown = msgspec.structs.replace(context, node_addresses=())
    assert sources(guarded(service, ["192.168.0.0/24"], unknown), "1.2.3.4") == ("192.168.0.0/24",)


def test_ranges_of_a_service_without_load_balancer_addresses_are_not_missed(
    service: ServiceBuilder, context: Context
) -> None:
    state = translate_service(service(type="LoadBalancer", loadBalancerSourceRanges=["2001:db8::/32"]), [], context)
    assert state.problems == ()
