"""Reads the facts of this network namespace; what cannot be read is left out."""

import socket
from collections.abc import Iterator
from pathlib import Path

from nodeagent.checks.facts import ChainFact, Facts, LinkFact
from nodeagent.checks.settings import CONNTRACK_DROPS, RP_FILTER_DROPS
from nodeagent.dataplane.kube_proxy.iptables_legacy import InstalledTools, legacy_tables
from nodeagent.dataplane.kube_proxy.leftovers import LeftoverError
from nodeagent.dataplane.kube_proxy.process import running_kube_proxy
from nodeagent.dataplane.nft.ruleset import Ruleset, typed
from nodeagent.model.addresses import Family
from nodeagent.netlink import rtnetlink
from nodeagent.netlink.nf_tables.expressions import Code
from nodeagent.netlink.nf_tables.objects import ChainHeader, read_chain
from nodeagent.netlink.socket import NetlinkSocket, read_consistently
from nodeagent.netlink.uapi.nf_tables import NFT_MSG_GETCHAIN
from nodeagent.netlink.uapi.nfnetlink import NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6

SETTINGS = Path("/proc/sys/net")
STATISTICS = Path("/proc/thread-self/net")
TOOLS = tuple(map(Path, ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin")))
_FAMILIES = {"ip": NFPROTO_IPV4, "ip6": NFPROTO_IPV6, "inet": NFPROTO_INET}
_NAMED = (
    "ipv4/ip_forward",
    "ipv6/conf/all/forwarding",
    "ipv4/conf/all/rp_filter",
    "ipv4/conf/all/route_localnet",
    "netfilter/nf_conntrack_max",
    "netfilter/nf_conntrack_count",
    "bridge/bridge-nf-call-iptables",
)
_OF_A_LINK = ("rp_filter", "route_localnet")
_DROP_COLUMN = "drop"


def read_facts(ruleset: Ruleset, pod_cidrs: tuple[str, ...], *, programmed: bool) -> Facts:
    """Everything that judgements are made of. Raises DataplaneError, OSError where the kernel cannot be asked at all."""
    links = tuple(_links())
    return Facts(
        (*_chains(ruleset), *_legacy_chains()),
        links,
        dict(_settings(links)),
        dict(_counters()),
        pod_cidrs,
        programmed,
        running_kube_proxy(),
    )


def _chains(ruleset: Ruleset) -> Iterator[ChainFact]:
    for family, number in _FAMILIES.items():
        with typed():
            found: list[ChainHeader] = [read_chain(data) for data in ruleset.dump(NFT_MSG_GETCHAIN, number)]
        for chain in found:
            yield ChainFact(f"{family} {chain.table}", chain.name, chain.hook, chain.policy == Code.ACCEPT)


def _legacy_chains() -> Iterator[ChainFact]:
    """Chains of iptables-legacy, by name only. Its programs run only where such tables are: asking makes them."""
    tools = InstalledTools(TOOLS)
    for family, command in ((Family.IPV4, "iptables-legacy"), (Family.IPV6, "ip6tables-legacy")):
        try:
            saved = tools.run([f"{command}-save"]) if legacy_tables(family) else ""
        except (LeftoverError, OSError):
            continue
        table = ""
        for line in saved.splitlines():
            if line.startswith("*"):
                table = line[1:].strip()
            elif line.startswith(":"):
                yield ChainFact(f"{command} {table}", line[1:].partition(" ")[0])


def _links() -> Iterator[LinkFact]:
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        found = read_consistently(lambda: [rtnetlink.read_link(body) for body in netlink.dump(rtnetlink.get_links())])
    masters = {link.master for link in found}
    return (LinkFact(link.name, link.kind, link.ifindex in masters) for link in found)


def _settings(links: tuple[LinkFact, ...]) -> Iterator[tuple[str, int]]:
    of_links = (f"ipv4/conf/{link.name}/{key}" for link in links for key in _OF_A_LINK)
    for path in (*_NAMED, *of_links):
        try:
            yield path, int((SETTINGS / path).read_text())
        except (OSError, ValueError):
            continue


def _counters() -> Iterator[tuple[str, int]]:
    """Of the whole namespace since it was made."""
    try:
        lines = (STATISTICS / "netstat").read_text().splitlines()
        heads, values = (line.split() for line in lines if line.startswith("TcpExt:"))
        yield RP_FILTER_DROPS, int(dict(zip(heads, values, strict=False)).get(RP_FILTER_DROPS, 0))
    except (OSError, ValueError):
        pass
    try:
        heads, *rows = (line.split() for line in (STATISTICS / "stat" / "nf_conntrack").read_text().splitlines())
        column = heads.index(_DROP_COLUMN)
        yield CONNTRACK_DROPS, sum(int(row[column], 16) for row in rows)
    except (OSError, ValueError):
        pass
