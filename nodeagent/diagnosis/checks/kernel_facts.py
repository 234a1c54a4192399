"""Reads the facts of this network namespace. Leaves out what cannot be read."""

import socket
import sys
from collections.abc import Iterator
from ipaddress import IPv4Network, ip_network
from pathlib import Path

from nodeagent.diagnosis.checks.node_facts import Facts, LinkFact
from nodeagent.diagnosis.checks.settings import CONNTRACK_CLASHES, CONNTRACK_DROPS, NEIGHBOURS, NEIGHBOURS_FULL
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.chains_here import ChainFact, read_chains
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.kube_proxy.iptables_legacy import InstalledTools, legacy_tables
from nodeagent.proxy.dataplane.kube_proxy.leftovers import LeftoverError
from nodeagent.proxy.dataplane.kube_proxy.running_kube_proxy import running_kube_proxy
from nodeagent.proxy.dataplane.program.chain import HookNumber
from nodeagent.proxy.dataplane.reverse_path import DROPS, read_drops
from nodeagent.wire.netlink import rtnetlink
from nodeagent.wire.netlink.bridges import families_filtered
from nodeagent.wire.netlink.nf_tables.ruleset_objects import ChainHook
from nodeagent.wire.netlink.socket import NetlinkSocket, retry

SETTINGS = Path("/proc/sys/net")
STATISTICS = Path("/proc/thread-self/net")
TOOLS = tuple(map(Path, ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin")))
_NAMED = (
    "ipv4/ip_forward",
    "ipv6/conf/all/forwarding",
    "ipv4/conf/all/rp_filter",
    "ipv4/conf/all/route_localnet",
    "netfilter/nf_conntrack_max",
    "netfilter/nf_conntrack_count",
    "bridge/bridge-nf-call-iptables",
    "bridge/bridge-nf-call-ip6tables",
    "ipv4/conf/all/arp_ignore",
    "ipv4/neigh/default/gc_thresh3",
    "ipv6/neigh/default/gc_thresh3",
)
_NEIGHBOUR_TABLES = (("ipv4", "arp_cache"), ("ipv6", "ndisc_cache"))
_BUILT_IN = {
    ("filter", "FORWARD"): ChainHook(HookNumber.FORWARD, 0, "filter"),
    ("nat", "PREROUTING"): ChainHook(HookNumber.PREROUTING, -100, "nat"),
    ("nat", "OUTPUT"): ChainHook(HookNumber.OUTPUT, -100, "nat"),
    ("nat", "POSTROUTING"): ChainHook(HookNumber.POSTROUTING, 100, "nat"),
}
"""Hook and priority of the chains of iptables-legacy that findings are about (enum nf_ip_hook_priorities)."""
_OF_A_LINK = ("rp_filter", "route_localnet", "arp_ignore", "forwarding")
_ENTRIES = "entries"
_COUNTED = (
    (CONNTRACK_DROPS, "nf_conntrack", "drop"),
    (CONNTRACK_CLASHES, "nf_conntrack", "insert_failed"),
    *((NEIGHBOURS.format(family), table, _ENTRIES) for family, table in _NEIGHBOUR_TABLES),
    *((NEIGHBOURS_FULL.format(family), table, "table_fulls") for family, table in _NEIGHBOUR_TABLES),
)
"""Counters in net/stat. The files have a line for each processor; the number of entries is the same in every line."""


def read_facts(ruleset: Ruleset, pod_cidrs: tuple[str, ...], *, programmed: frozenset[Family]) -> Facts:
    """Returns the input of all checks. Raises DataplaneError or OSError if the kernel cannot be read at all."""
    links = tuple(_links())
    return Facts(
        (*read_chains(ruleset), *_legacy_chains()),
        links,
        dict(_settings(links)),
        dict(_counters()),
        pod_cidrs,
        programmed,
        running_kube_proxy(),
        dict(_destinations_by_link(pod_cidrs)),
    )


def _destinations_by_link(pod_cidrs: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yields (interface, whom it leads to) from /proc/net/route, the main table of IPv4.

    Its columns: interface, destination, gateway …, mask; addresses in the byte order of the host.
    """
    pods = [network for cidr in pod_cidrs if isinstance(network := ip_network(cidr), IPv4Network)]
    try:
        rows = [line.split() for line in (STATISTICS / "route").read_text().splitlines()[1:]]
    except OSError:
        return
    for name, destination, _, _, _, _, _, mask, *_ in rows:
        first, bits = (int.from_bytes(bytes.fromhex(text), sys.byteorder) for text in (destination, mask))
        network = IPv4Network((first, bits.bit_count()))
        if not network.prefixlen:
            yield name, "everybody outside"
        elif any(network.subnet_of(pod) for pod in pods):
            yield name, "pods"


def _legacy_chains() -> Iterator[ChainFact]:
    """Yields the chains of iptables-legacy. Runs its programs only if such tables exist, because running them creates tables."""
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
                name, policy, *_ = line[1:].split()
                hook = None if policy == "-" else _BUILT_IN.get((table, name))
                yield ChainFact(f"{command} {table}", name, hook, policy != "DROP")


def _links() -> Iterator[LinkFact]:
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        found = retry(
            lambda: [
                (rtnetlink.read_link(body), families_filtered(body)) for body in netlink.dump(rtnetlink.get_links())
            ]
        )
    masters = {link.master for link, _ in found}
    return (LinkFact(link.name, link.kind, link.ifindex in masters, filtered) for link, filtered in found)


def _settings(links: tuple[LinkFact, ...]) -> Iterator[tuple[str, int]]:
    of_links = (f"ipv4/conf/{link.name}/{key}" for link in links for key in _OF_A_LINK)
    for path in (*_NAMED, *of_links):
        try:
            yield path, int((SETTINGS / path).read_text())
        except (OSError, ValueError):
            continue


def _counters() -> Iterator[tuple[str, int]]:
    """Yields (name, count since the namespace was created) of each counter that can be read."""
    if (dropped := read_drops()) is not None:
        yield DROPS, dropped
    for name, table, column in _COUNTED:
        try:
            heads, *rows = (line.split() for line in (STATISTICS / "stat" / table).read_text().splitlines())
            at = heads.index(column)
            found = [int(row[at], 16) for row in rows]
            yield name, (found or [0])[0] if column == _ENTRIES else sum(found)
        except (OSError, ValueError):
            continue
