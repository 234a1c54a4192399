"""Pods of one bridge that do not find each other, and the firewall that is to let them."""

from typing import Any

import pytest

from nodeagent.diagnosis.trace.journey import Node, journeys
from nodeagent.diagnosis.trace.others import OtherTable, read_table
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.report import Report
from nodeagent.diagnosis.trace.routes import Between
from nodeagent.model.addresses import Protocol

from .conftest import Routes
from .test_others_walk import DROP, match, meta, payload

POD, OTHER = "fd00:244:1::c8", "fd00:244:1::a"
TRACKED = match({"ct": {"key": "state"}}, {"set": ["established", "related", "new"]}, "in")
SOLICITATION = match(payload("icmpv6", "type"), "nd-neighbor-solicit")


def closed(name: str, *rules: list[Any], chains: tuple[str, ...] = ()) -> OtherTable:
    """A table that lets connections through, and else what these rules accept."""
    base = {"name": "f", "hook": "forward", "type": "filter", "prio": 0, "policy": "drop"}
    listed: list[Any] = [{"chain": base}, *({"chain": {"name": chain}} for chain in chains)]
    listed += [
        {"rule": {"chain": "f", "handle": number, "expr": rule}}
        for number, rule in enumerate([[TRACKED, {"accept": None}], *rules])
    ]
    return read_table(name, listed, {}, {})


def verdict(table: OtherTable, between: Between = Between.FILTERED, source: str = POD, to: str = OTHER) -> str:
    node, routes = Node(None, (table,)), Routes(way_between=between)
    asked = Question(source, to, 8080, Protocol.TCP)
    reported = Report(asked, node, journeys(asked, node, routes)).verdict
    assert reported.startswith("arrives: ")
    return reported.partition("; as far as is known: ")[2]


@pytest.mark.parametrize(
    ("table", "cure"),
    [
        pytest.param(closed("inet guard"), "let through what goes from cni0 to cni0", id="anybody's"),
        pytest.param(
            closed("inet firewalld"),
            "firewall-cmd --permanent --zone=trusted --add-interface=cni0; firewall-cmd --reload",
            id="firewalld",
        ),
        pytest.param(
            closed("ip6 filter", chains=("ufw6-user-forward",)), "ufw route allow in on cni0 out on cni0", id="ufw"
        ),
    ],
)
def test_a_firewall_that_stops_it_is_named_and_how_to_open_it(table: OtherTable, cure: str) -> None:
    reported = verdict(table)
    assert reported.startswith(f"{OTHER} does not find {POD} behind the bridge cni0, ")
    assert f"forward: {table.name}, chain f: the policy of the chain: {cure}" in reported


@pytest.mark.parametrize(
    "opens",
    [
        pytest.param([match(meta("l4proto"), "ipv6-icmp"), {"accept": None}], id="ICMPv6"),
        pytest.param([SOLICITATION, {"accept": None}], id="solicitations"),
        pytest.param([match(payload("ip6", "daddr"), "ff02::1:ff00:c8"), {"accept": None}], id="its group"),
        pytest.param([match({"ct": {"key": "state"}}, "untracked"), {"accept": None}], id="untracked"),
        pytest.param(
            [match(meta("iifname"), "cni0"), match(meta("oifname"), "cni0"), {"accept": None}], id="the bridge"
        ),
        pytest.param([match(payload("ip6", "hoplimit"), 255), {"accept": None}], id="something that is not known"),
    ],
)
def test_one_that_lets_it_pass_is_not(opens: list[Any]) -> None:
    assert verdict(closed("inet guard", opens)) == ""


def test_a_rule_against_it_is_found() -> None:
    assert "does not find" in verdict(closed("inet guard", [SOLICITATION, DROP], [{"accept": None}]))


@pytest.mark.parametrize("between", [Between.HERE, Between.BRIDGED], ids=["routed", "past the rules"])
def test_there_is_no_finding_where_rules_do_not_see_neighbour_discovery(between: Between) -> None:
    assert verdict(closed("inet guard"), between) == ""


def test_ipv4_finds_by_arp() -> None:
    assert verdict(closed("inet guard"), source="10.244.1.200", to="10.244.1.10") == ""
