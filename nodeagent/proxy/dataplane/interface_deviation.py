"""Describes how the service interface differs from its desired state (pure)."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from nodeagent.model.addresses import Family, family_of
from nodeagent.proxy.dataplane.interface_claim import MARK
from nodeagent.proxy.dataplane.interface_plan import BySource, Present, apply_plan, in_order, plan
from nodeagent.proxy.dataplane.interface_sources import Sources, with_sources
from nodeagent.wire.netlink.rtnetlink import Link

RIGHT = "right"


class InterfaceFound(NamedTuple):
    """The interface as it was read.

    link: None if there is no interface of the name. objection: why it is not ours; None: it is. ipv6: it may carry IPv6.
    lo: the kernel accepts routes over ``lo``. sources: which the routes shall have; None: not known.
    """

    link: Link | None
    objection: str | None
    present: Present
    ipv6: bool
    lo: bool = True
    sources: Sources | None = None


class AddressDeviation(Struct, frozen=True):
    """One address. wanted, found: `address`, `route` and `route over lo`, joined by `and`, each route with its preferred source
    (`route from 192.0.2.11`), if it has one; None: not wanted, or does not exist.

    service: whose ClusterIP it is; empty if no Service has it.
    """

    address: str
    wanted: str | None
    found: str | None
    service: str = ""


def interface_state(found: InterfaceFound) -> str:
    """Returns `right`, or what is wrong with the interface itself, as text to follow its name."""
    link = found.link
    if link is None:
        return "is not there"
    if found.objection is not None:
        return f"is not the agent's: it {found.objection}"
    wrong = []
    if not link.up:
        wrong.append("is down")
    if link.resolves:
        wrong.append("answers ARP and neighbour discovery")
    if link.alias != MARK:
        wrong.append(f"lacks the alias {MARK}")
    return ", ".join(wrong) or RIGHT


def address_deviations(wanted: Mapping[str, str], found: InterfaceFound) -> list[AddressDeviation]:
    """Returns what the agent would change at its next full comparison, in numeric order, foreign prefixes last.

    wanted: the addresses that shall be local, each with its Service (empty: the node's own). IPv6 ones are wanted only
    if the interface may carry them.
    """
    present = found.present
    local = frozenset(one for one in wanted if found.ipv6 or family_of(one) is Family.IPV4)
    change = plan(local, present)
    after = apply_plan(present, with_sources(change, present, found.sources, lo=found.lo))
    differing = [
        AddressDeviation(address, _form(address, after), _form(address, present), wanted.get(address, ""))
        for address in (() if after == present else in_order(after.vips.union(present.vips, *present.over_lo.values())))
        if _form(address, after) != _form(address, present)
    ]
    strays = [AddressDeviation(f"{one.address}/{one.prefix_length}", None, "address") for one in sorted(present.strays)]
    return differing + strays


def _form(address: str, present: Present) -> str | None:
    forms = [
        *(["address"] if address in present.addresses else []),
        *([f"route{_from(address, present.sourced)}"] if address in present.routes else []),
        *(f"route over lo{_from(address, {source: to})}" for source, to in present.over_lo.items() if address in to),
    ]
    return " and ".join(sorted(forms)) or None


def _from(address: str, sources: BySource) -> str:
    return next((f" from {source}" for source, routes in sources.items() if source and address in routes), "")
