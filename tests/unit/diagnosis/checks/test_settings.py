"""What sysctls and counters mean, and who comes before us."""

from typing import Any

import pytest

from nodeagent.diagnosis.checks.finding import Finding, Result, verdict_of
from nodeagent.diagnosis.checks.hook_order import order_findings
from nodeagent.diagnosis.checks.node_facts import Facts, LinkFact
from nodeagent.diagnosis.checks.settings import CONNTRACK_CLASHES, CONNTRACK_DROPS, setting_findings
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.chains_here import ChainFact
from nodeagent.proxy.dataplane.program.chain import HookNumber
from nodeagent.proxy.dataplane.reverse_path import DROPS
from nodeagent.wire.netlink.nf_tables.ruleset_objects import ChainHook

RIGHT = {
    "ipv4/ip_forward": 1,
    "ipv6/conf/all/forwarding": 1,
    "netfilter/nf_conntrack_max": 1000,
    "netfilter/nf_conntrack_count": 10,
    "bridge/bridge-nf-call-iptables": 1,
    "bridge/bridge-nf-call-ip6tables": 1,
}
LINKS = (LinkFact("eth0"), LinkFact("eth1"), LinkFact("cni0", "bridge", has_ports=True))


def found(settings: dict[str, int], **more: Any) -> dict[str, Finding]:
    facts = Facts(links=LINKS, settings=RIGHT | settings, programmed=frozenset(Family), **more)
    return {finding.check: finding for finding in setting_findings(facts)}


def test_a_node_that_is_right_has_nothing_to_note() -> None:
    assert {finding.result for finding in found({}).values()} == {Result.OK}


def test_forwarding_is_missed_for_the_families_that_are_programmed() -> None:
    off = RIGHT | {"ipv6/conf/all/forwarding": 0}
    for programmed, result in ((frozenset({Family.IPV4}), Result.NOTE), (frozenset(Family), Result.FAILED)):
        findings = setting_findings(Facts(links=LINKS, settings=off, programmed=programmed))
        (reported,) = (one for one in findings if one.check == "IPv6 forwarding")
        assert reported.result is result


def test_intended_and_harmless_settings_are_not_failures() -> None:
    assert "arp_ignore" not in found({"ipv4/conf/eth1/arp_ignore": 1})
    assert "neighbour table" not in found({"ipv4/neigh/default/gc_thresh3": 1024}, counters={"ipv4 neighbours": 1023})


@pytest.mark.parametrize(
    ("settings", "counters", "check", "result", "says"),
    [
        ({"ipv4/ip_forward": 0}, {}, "IPv4 forwarding", Result.FAILED, "no connection reaches an endpoint"),
        ({"ipv6/conf/all/forwarding": 0}, {}, "IPv6 forwarding", Result.FAILED, "no connection reaches an endpoint"),
        ({"ipv4/conf/eth1/forwarding": 0}, {}, "IPv4 forwarding", Result.NOTE, "off for eth1"),
        ({"ipv4/conf/eth1/arp_ignore": 8}, {}, "arp_ignore", Result.FAILED, "8 for eth1"),
        ({"ipv4/conf/all/arp_ignore": 8}, {}, "arp_ignore", Result.FAILED, "8 for eth0, eth1"),
        (
            {"ipv4/neigh/default/gc_thresh3": 1024},
            {"ipv4 neighbours": 1024},
            "neighbour table",
            Result.FAILED,
            "it is full (1024 of 1024 entries)",
        ),
        ({}, {"ipv6 neighbour table full": 3}, "neighbour table", Result.NOTE, "it was full 3 times"),
        ({"ipv4/conf/eth1/rp_filter": 1}, {DROPS: 7}, "rp_filter", Result.FAILED, "dropped 7 packets"),
        ({"ipv4/conf/all/rp_filter": 1}, {DROPS: 7}, "rp_filter", Result.FAILED, "eth0, eth1"),
        ({"ipv4/conf/eth1/rp_filter": 1}, {}, "rp_filter", Result.OK, "dropped nothing"),
        ({"ipv4/conf/eth1/rp_filter": 2}, {DROPS: 7}, "rp_filter", Result.OK, "off or loose"),
        ({"ipv4/conf/eth0/route_localnet": 1}, {}, "route_localnet", Result.NOTE, "127.0.0.1"),
        ({"netfilter/nf_conntrack_count": 1000}, {}, "connection table", Result.FAILED, "it is full (1000 of 1000"),
        ({"netfilter/nf_conntrack_count": 901}, {}, "connection table", Result.FAILED, "nearly full"),
        ({}, {CONNTRACK_DROPS: 3}, "connection table", Result.NOTE, "3 new connections were dropped"),
        (
            {},
            {CONNTRACK_DROPS: 5, CONNTRACK_CLASHES: 2},
            "connection table",
            Result.NOTE,
            "3 new connections were dropped",
        ),
        ({}, {CONNTRACK_DROPS: 2, CONNTRACK_CLASHES: 2}, "connection table", Result.NOTE, "no source port was left"),
        ({"bridge/bridge-nf-call-iptables": 0}, {}, "bridged packets", Result.NOTE, "gets no answer"),
        ({"bridge/bridge-nf-call-ip6tables": 0}, {}, "bridged packets", Result.NOTE, "bridge-nf-call-ip6tables is 0"),
    ],
)
def test_each_setting_has_its_finding(
    settings: dict[str, int], counters: dict[str, int], check: str, result: Result, says: str
) -> None:
    finding = found(settings, counters=counters)[check]
    assert finding.result is result
    assert says in finding.detail
    assert finding.cure or result is Result.OK


def test_a_bridge_may_have_a_setting_of_its_own_and_one_family_may_be_off() -> None:
    off = RIGHT | {"bridge/bridge-nf-call-iptables": 0, "bridge/bridge-nf-call-ip6tables": 0}
    filtered = LinkFact("cni0", "bridge", has_ports=True, filtered=frozenset(Family))
    assert not [
        one for one in setting_findings(Facts(links=(filtered,), settings=off)) if one.check == "bridged packets"
    ]
    without = off | {"ipv6/conf/all/forwarding": 0}
    reported = [one for one in setting_findings(Facts(links=LINKS, settings=without)) if one.check == "bridged packets"]
    assert [one.cure for one in reported] == ["modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1"]


def test_forwarding_is_not_judged_before_anything_is_programmed() -> None:
    facts = Facts(settings=RIGHT | {"ipv4/ip_forward": 0})
    assert next(finding.result for finding in setting_findings(facts)) is Result.NOTE


@pytest.mark.parametrize(
    ("hook", "priority", "kind", "early"),
    [
        (HookNumber.PREROUTING, -110, "nat", True),
        (HookNumber.OUTPUT, -200, "nat", True),
        (HookNumber.POSTROUTING, 90, "nat", True),
        (HookNumber.PREROUTING, -100, "nat", False),
        (HookNumber.POSTROUTING, 100, "nat", False),
        (HookNumber.PREROUTING, -300, "filter", False),
    ],
)
def test_who_translates_before_us(hook: HookNumber, priority: int, kind: str, early: bool) -> None:
    facts = Facts((ChainFact("ip other", "p", ChainHook(hook, priority, kind)),))
    (finding,) = order_findings(facts)
    assert (finding.result is Result.FAILED) is early
    assert not early or f"ip other, chain p translates in {hook.name.lower()} at {priority}" in finding.detail


def test_a_table_of_our_own_passes_the_check_of_the_order() -> None:
    facts = Facts((ChainFact("ip nodeagent", "prerouting", ChainHook(HookNumber.PREROUTING, -105, "nat")),))
    assert [finding.result for finding in order_findings(facts)] == [Result.OK]


def test_the_first_line_names_what_is_wrong_and_what_to_do() -> None:
    fine, note = Finding("nft", Result.OK, "1.1.3"), Finding("ufw", Result.NOTE, "here")
    first = Finding("IPv4 table", Result.FAILED, "it is gone", "start the agent")
    assert verdict_of([fine, note]) == "healthy"
    assert verdict_of([note, first]) == "not healthy: IPv4 table, because it is gone; start the agent"
    assert verdict_of([first, first, first]).endswith("; start the agent (and 2 more)")
