"""A host behind a link of its own, with host routes, so that any address can be anywhere: the `ip` commands. Pure text.

A host's uplink is `eth0`; its other end, on the underlay, has the host's name. Links are created from the inner end.
"""

from collections.abc import Iterator

from msgspec import Struct

from nodeagent.lab.net.pod_wiring import NamespaceOf
from nodeagent.lab.net.prefixes import families, host_prefix, nodad
from nodeagent.lab.net.topology import Node, OutsideHost
from nodeagent.model.addresses import Family

ROUTER = {Family.IPV4: "169.254.1.1", Family.IPV6: "fe80::1"}

UNDERLAY_ADDRESSES = ("192.0.0.8", "fd00:ffff::8")
"""Source addresses of its ICMP errors; they must be forwardable."""

QUIET = {
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0",
    "net/ipv4/conf/default/send_redirects": "0",
    "net/ipv6/conf/all/disable_ipv6": "0",
    "net/ipv6/conf/default/disable_ipv6": "0",
    "net/ipv6/conf/all/accept_dad": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/accept_ra": "0",
}
"""Set everywhere before the first link: addresses are usable at once (no DAD), asymmetric routes are accepted."""

FORWARDING = {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
"""For nodes and the underlay."""


class Step(Struct, frozen=True):
    """Commands for one `ip -batch` in one namespace; `family` for commands that do not know it from an address."""

    member: str
    lines: tuple[str, ...]
    family: Family | None = None


def underlay_side(host: Node | OutsideHost, namespace_of: NamespaceOf) -> Iterator[str]:
    """Yields the commands for the underlay's link to one host, and its routes to that."""
    yield f"link add {host.name} type veth peer name eth0 netns {namespace_of(host.name)}"
    yield f"link set {host.name} up"
    yield f"addr add {ROUTER[Family.IPV4]}/32 dev {host.name} scope link"
    yield f"addr add {ROUTER[Family.IPV6]}/64 dev {host.name} nodad"
    for address in host.addresses:
        yield f"route add {host_prefix(address)} dev {host.name}"


def uplink(host: Node | OutsideHost) -> Iterator[str]:
    """Yields the commands for a host's own end: addresses and default routes."""
    yield "link set lo up"
    yield "link set eth0 up"
    for address in host.addresses:
        yield f"addr add {host_prefix(address)} dev eth0{nodad(address)}"
    for family in families(host.addresses):
        yield f"route add default via {ROUTER[family]} dev eth0 onlink"
