"""Judges the node's sysctls and counters by what they mean for Services (pure)."""

from collections.abc import Iterator

from nodeagent.diagnosis.checks.finding import Finding, Result
from nodeagent.diagnosis.checks.node_facts import Facts
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane import reverse_path
from nodeagent.proxy.dataplane.connection_table import CURE, NEARLY_FULL
from nodeagent.wire.netlink.bridges import FOR_ALL_BRIDGES

CONNTRACK_DROPS = "conntrack drop"
CONNTRACK_CLASHES = "conntrack clash"
"""Counted as drops too (nf_ct_resolve_clash)."""
NEIGHBOURS, NEIGHBOURS_FULL = "{} neighbours", "{} neighbour table full"
NO_ANSWERS = 8
"""The value of arp_ignore with which the host answers no ARP request (ip-sysctl)."""
_FAMILY_NAMES = {"ipv4": "IPv4", "ipv6": "IPv6"}
_FORWARDING = {
    "IPv4": ("ipv4/ip_forward", "net.ipv4.ip_forward"),
    "IPv6": ("ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding"),
}


def setting_findings(facts: Facts) -> Iterator[Finding]:
    """Yields the findings for forwarding, reverse path filter, ARP, loopback routing, connection and neighbour tables,
    and bridged packets."""
    yield from _forwarding(facts)
    yield from _forwarding_of_links(facts)
    yield from _reverse_path(facts)
    yield from _arp_ignore(facts)
    yield from _loopback(facts)
    yield from _connection_table(facts)
    yield from _neighbours(facts)
    yield from _bridges(facts)


def _forwarding(facts: Facts) -> Iterator[Finding]:
    for family, (path, name) in _FORWARDING.items():
        if path not in facts.settings:
            continue
        if facts.settings[path]:
            yield Finding(f"{family} forwarding", Result.OK, f"{name} is on")
        else:
            result = Result.FAILED if Family(family) in facts.programmed else Result.NOTE
            detail = f"{name} is 0: no connection reaches an endpoint in a pod or on another node"
            yield Finding(
                f"{family} forwarding", result, detail, f"sysctl -w {name}=1", "ForwardingOff", family, total=True
            )


def _forwarding_of_links(facts: Facts) -> Iterator[Finding]:
    """Checks interfaces with forwarding off: packets that arrive there are not forwarded. It is a failure for interfaces
    that lead to pods or clients, and a note for others, where it may be on purpose."""
    off = [link.name for link in facts.links if facts.settings.get(f"ipv4/conf/{link.name}/forwarding") == 0]
    if not off or not facts.settings.get("ipv4/ip_forward"):
        return
    for name in (one for one in off if one in facts.leading):
        detail = f"off for {name}, which leads to {facts.leading[name]}: what comes in there reaches no pod and no other node"
        cure = f"sysctl -w net.ipv4.conf.{name}.forwarding=1"
        yield Finding("IPv4 forwarding", Result.FAILED, detail, cure, "ForwardingOff", "IPv4")
    others = [one for one in off if one not in facts.leading]
    if others:
        detail = f"off for {', '.join(others[:3])}: what comes in there reaches no pod and no other node"
        cure = f"sysctl -w net.ipv4.conf.{others[0]}.forwarding=1, unless that is meant"
        yield Finding("IPv4 forwarding", Result.NOTE, detail, cure)


def _arp_ignore(facts: Facts) -> Iterator[Finding]:
    """Yields a failure if an interface answers no ARP request. The greater of its own value and that of `all` counts."""
    everywhere = facts.settings.get("ipv4/conf/all/arp_ignore", 0)
    mute = [
        link.name
        for link in facts.links
        if max(everywhere, facts.settings.get(f"ipv4/conf/{link.name}/arp_ignore", 0)) == NO_ANSWERS
        and link.name != "lo"
    ]
    if mute:
        yield Finding(
            "arp_ignore",
            Result.FAILED,
            f"{NO_ANSWERS} for {', '.join(mute[:3])}: nobody there who asks for an address of this node is answered",
            f"sysctl -w net.ipv4.conf.{mute[0]}.arp_ignore=0",
            "AddressesNotAnswered",
            "IPv4",
        )


def _neighbours(facts: Facts) -> Iterator[Finding]:
    """Checks the neighbour tables: when one is full, packets to hosts that are not in it are dropped (neigh_alloc)."""
    for family, name in _FAMILY_NAMES.items():
        most = facts.settings.get(f"{family}/neigh/default/gc_thresh3", 0)
        count = facts.counters.get(NEIGHBOURS.format(family), 0)
        full = facts.counters.get(NEIGHBOURS_FULL.format(family), 0)
        cure = f"sysctl -w net.{family}.neigh.default.gc_thresh3=N, on the machine itself"
        if most and count >= most:
            detail = f"it is full ({count} of {most} entries): no packet reaches a pod or host that is not in it"
            yield Finding("neighbour table", Result.FAILED, detail, cure, "NeighbourTableFull", name)
        elif full:
            yield Finding("neighbour table", Result.NOTE, f"it was full {full} times since the start", cure)


def _reverse_path(facts: Facts) -> Iterator[Finding]:
    strict = reverse_path.strict_interfaces((link.name for link in facts.links), facts.settings.get)
    dropped = facts.counters.get(reverse_path.DROPS, 0)
    if strict and dropped:
        detail = reverse_path.describe(strict, f"has dropped {dropped} packets")
        yield Finding("rp_filter", Result.FAILED, detail, reverse_path.cure(strict))
    elif strict:
        yield Finding("rp_filter", Result.OK, f"strict on {len(strict)} interfaces, and it has dropped nothing")
    else:
        yield Finding("rp_filter", Result.OK, "off or loose")


def _loopback(facts: Facts) -> Iterator[Finding]:
    open_at = [
        name
        for name in ("all", *(link.name for link in facts.links))
        if facts.settings.get(f"ipv4/conf/{name}/route_localnet")
    ]
    if open_at:
        detail = f"on for {open_at[0]}: servers on 127.0.0.1 may be reached from the network; node ports need it not"
        yield Finding("route_localnet", Result.NOTE, detail, f"sysctl -w net.ipv4.conf.{open_at[0]}.route_localnet=0")


def _connection_table(facts: Facts) -> Iterator[Finding]:
    most, count = facts.settings.get("netfilter/nf_conntrack_max"), facts.settings.get("netfilter/nf_conntrack_count")
    if not most or count is None:
        return
    fill = f"{count} of {most} entries"
    cure = CURE
    clashes = facts.counters.get(CONNTRACK_CLASHES, 0)
    dropped = facts.counters.get(CONNTRACK_DROPS, 0) - clashes
    if count >= most:
        detail = f"it is full ({fill}): new connections are dropped"
        yield Finding("connection table", Result.FAILED, detail, cure, "ConnectionTableFull", total=True)
    elif count >= NEARLY_FULL * most:
        detail = f"it is nearly full ({fill})"
        yield Finding("connection table", Result.FAILED, detail, cure, "ConnectionTableNearlyFull")
    elif dropped > 0:
        detail = f"{fill}; {dropped} new connections were dropped when it was full"
        yield Finding("connection table", Result.NOTE, detail, cure)
    elif clashes:
        detail = (
            f"{fill}; {clashes} packets were dropped because their connection was there already, of another: no source port was left "
            "to masquerade them, or one socket sent several at once (lookups of names do)"
        )
        cure = "nodeagent trace CLIENT SERVICE:PORT says whether ports are left; see conntrack -S (insert_failed)"
        yield Finding("connection table", Result.NOTE, detail, cure)
    else:
        yield Finding("connection table", Result.OK, fill)


def _bridges(facts: Facts) -> Iterator[Finding]:
    """Checks bridges: pods behind one bridge answer each other directly, past the rules that translate back."""
    for family, setting in FOR_ALL_BRIDGES.items():
        path = f"bridge/{setting}"
        forwards = facts.settings.get(_FORWARDING[family.value][0], 0)
        unseen = [
            link.name
            for link in facts.links
            if link.kind == "bridge" and link.has_ports and family not in link.filtered
        ]
        if not unseen or not forwards or facts.settings.get(path):
            continue
        why = f"{setting} is 0" if path in facts.settings else "the module br_netfilter is not loaded"
        yield Finding(
            "bridged packets",
            Result.NOTE,
            f"{why}: where pods are ports of {unseen[0]}, one that reaches another through a Service gets no answer",
            f"modprobe br_netfilter; sysctl -w net.bridge.{setting}=1",
        )
