"""Finds out which address families this machine has."""

from collections.abc import Collection
from pathlib import Path

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.errors import Unsupported

_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_IPV6_SWITCH = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")


def families_here() -> tuple[Family, ...]:
    """Returns IPv4, and IPv6 if the kernel has it and net.ipv6.conf.all.disable_ipv6 is 0."""
    if _IPV6_ADDRESSES.exists() and _IPV6_SWITCH.exists() and _IPV6_SWITCH.read_text().strip() != "1":
        return (Family.IPV4, Family.IPV6)
    return (Family.IPV4,)


def choose_families(wanted: Collection[Family] | None) -> tuple[Family, ...]:
    """Returns the wanted families that this machine has; None: all it has. Raises Unsupported if it has none of them."""
    able = families_here()
    if wanted is None:
        return able
    chosen = tuple(family for family in able if family in wanted)
    if not chosen:
        names = ", ".join(family.value for family in wanted)
        raise Unsupported(f"node.families: {names} is off on this machine (see net.ipv6.conf.all.disable_ipv6)")
    return chosen
