"""Other programs are recognised by their rules, as recorded, and what follows from them is said."""

import re
from collections.abc import Iterator
from pathlib import Path
from string import Template

import pytest

from nodeagent.diagnosis.checks.finding import Result
from nodeagent.diagnosis.checks.node_facts import Facts, LinkFact
from nodeagent.diagnosis.checks.programs import PROGRAMS, closed_forwarding, program_findings
from nodeagent.proxy.dataplane.chains_here import ChainFact
from nodeagent.proxy.dataplane.program.chain import HookNumber
from nodeagent.wire.netlink.nf_tables.ruleset_objects import ChainHook

RULES = Path(__file__).parents[3] / "netns" / "neighbours" / "rules"
RECORDED = {
    "docker.iptables": {"Docker"},
    "docker.nft": {"Docker"},
    "firewalld.nft": {"firewalld"},
    "flannel.iptables": {"flannel"},
    "flannel.nft": {"flannel"},
    "kube-proxy.iptables": {"kube-proxy"},
    "kube-proxy.nft": {"kube-proxy"},
    "portmap.iptables": {"CNI portmap"},
    "portmap.nft": {"CNI portmap"},
    "ufw-IPv4.iptables": {"ufw"},
    "ufw-IPv6.iptables": {"ufw"},
    "calico.iptables": {"Calico"},
    "cilium.iptables": {"Cilium"},
    "tailscale.iptables": {"Tailscale"},
    "masquerade-all.iptables": set[str](),
    "other-proxy.iptables": set[str](),
    "other-proxy.nft": set[str](),
}
OF_INTERFACES = {
    "kube-ipvs0": "kube-proxy",
    "docker0": "Docker",
    "flannel.1": "flannel",
    "cali0123456789a": "Calico",
    "cilium_host": "Cilium",
    "tailscale0": "Tailscale",
    "virbr0": "libvirt",
    "kube-dummy-if": "kube-router",
    "weave": "Weave Net",
}


def chains_of(rules: str) -> Iterator[ChainFact]:
    """The chains that a file makes: of iptables `:NAME`, of nft `chain NAME`."""
    table = ""
    for line in rules.splitlines():
        if found := re.match(r"\*(\w+)", line):
            table = f"ip {found[1]}"
        elif found := re.match(r"(?:add )?table (\S+) (\S+)", line):
            table = f"{found[1]} {found[2]}"
        elif found := re.match(r":(\S+)|\s*(?:add )?chain (?:\S+ \S+ )?(\S+)", line):
            yield ChainFact(table, found[1] or found[2])


@pytest.mark.parametrize("file", sorted(path.name for path in RULES.iterdir()))
def test_whose_rules_they_are(file: str) -> None:
    text = Template((RULES / file).read_text()).safe_substitute(ip="ip", family="ipv4")
    facts = Facts(tuple(chains_of(text)))
    found = {finding.check: finding for finding in program_findings(facts)}
    assert found.keys() == RECORDED[file]
    assert all(finding.result is Result.NOTE for finding in found.values())


@pytest.mark.parametrize(("link", "program"), OF_INTERFACES.items())
def test_whose_interface_it_is(link: str, program: str) -> None:
    assert [finding.check for finding in program_findings(Facts(links=(LinkFact(link),)))] == [program]


def test_no_other_program_is_found_on_a_clean_node() -> None:
    own = Facts(
        (ChainFact("ip nodeagent", "prerouting"), ChainFact("ip filter", "FORWARD")),
        (LinkFact("eth0"), LinkFact("cni0")),
    )
    assert list(program_findings(own)) == []


def test_each_says_what_follows_and_what_to_do() -> None:
    for program in PROGRAMS:
        assert len(program.consequence) > 20
        assert program.cure
        assert "\n" not in program.consequence + program.cure


def test_a_kube_proxy_that_runs_is_wrong() -> None:
    (finding,) = program_findings(Facts(kube_proxy=77))
    assert finding.result is Result.FAILED
    assert finding.detail.startswith("a kube-proxy runs here (pid 77)")
    assert "cleanup --of kube-proxy" in finding.cure


@pytest.mark.parametrize(
    ("pods", "result"),
    [(("100.64.0.0/16", "fd00::/48"), Result.FAILED), (("10.244.0.0/16",), Result.NOTE)],
    ids=["in its range", "elsewhere"],
)
def test_tailscale_drops_pods_that_are_in_its_range(pods: tuple[str, ...], result: Result) -> None:
    (finding,) = program_findings(Facts((ChainFact("ip filter", "ts-input"),), pod_cidrs=pods))
    assert finding.result is result


def test_a_chain_that_drops_what_is_forwarded_is_named() -> None:
    hook = ChainHook(HookNumber.FORWARD, 0, "filter")
    facts = Facts((ChainFact("ip filter", "FORWARD", hook, accepts=False), ChainFact("ip6 filter", "FORWARD", hook)))
    (finding,) = closed_forwarding(facts)
    assert finding.detail.startswith("ip filter, chain FORWARD drops")
