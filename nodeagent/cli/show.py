"""`nodeagent show`: prints what is programmed in the kernel."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import click

from nodeagent.cli.columns import Column
from nodeagent.cli.examples import examples
from nodeagent.cli.kernel_reading import kernel_failures
from nodeagent.cli.read_retries import read_with_retries
from nodeagent.cli.rows import output_option, print_rows
from nodeagent.diagnosis.tables.inspection import ProgrammedFrontend, programmed_frontends
from nodeagent.model.addresses import Family, endpoint_text
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable, present_specs
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import DataplaneError

Row = dict[str, Any]

COLUMNS = {
    "services": (
        Column("service", "SERVICE"),
        Column("family", "FAMILY", leaves=3),
        Column("addresses", "ADDRESSES"),
        Column("backends", "BACKENDS", number=True, leaves=2),
        Column("connections", "CONNECTIONS", number=True, leaves=1),
    ),
    "frontends": (
        Column("service", "SERVICE"),
        Column("family", "FAMILY", leaves=5),
        Column("kind", "KIND", leaves=1),
        Column("frontend", "FRONTEND"),
        Column("for", "FOR", leaves=4),
        Column("action", "ACTION", leaves=3),
        Column("connections", "CONNECTIONS", number=True, leaves=2),
    ),
    "backends": (
        Column("service", "SERVICE"),
        Column("family", "FAMILY", leaves=3),
        Column("frontend", "FRONTEND"),
        Column("for", "FOR", leaves=2),
        Column("slot", "SLOT", number=True, leaves=1),
        Column("connections", "CONNECTIONS", number=True, leaves=2),
        Column("backend", "BACKEND"),
    ),
}


@click.command(
    "show",
    epilog=examples(
        "nodeagent show",
        "nodeagent show frontends",
        "nodeagent show backends -o wide",
        "nodeagent show services -o name",
    ),
)
@click.argument("what", type=click.Choice(list(COLUMNS)), default="services")
@output_option
def show_command(what: str, output: str) -> None:
    """Print services, frontends or backends as the kernel holds them; the agent need not run.

    CONNECTIONS counts new connections since the frontend is programmed, over changes and restarts of the agent.
    Exit codes: 0, 1 failed or nothing is programmed, 3 no permission.
    """
    with kernel_failures():
        frontends = read_frontends()
    rows = {"services": service_rows, "frontends": frontend_rows, "backends": backend_rows}[what](frontends)
    counted = [one for one in COLUMNS[what] if one.key != "connections" or what != "backends" or _has_counts(rows)]
    print_rows(counted, rows, output, wide=frozenset(), name=what.removesuffix("s"))


def _has_counts(rows: Sequence[Row]) -> bool:
    return any(row["connections"] is not None for row in rows)


def read_frontends() -> list[ProgrammedFrontend]:
    """Returns all frontends of both families. Raises DataplaneError if nothing is programmed or the kernel cannot be read."""
    tables = [found for family in Family if (found := read_with_retries(partial(_read_family, family))) is not None]
    if not tables:
        raise DataplaneError("nothing is programmed here: no table nodeagent (of this version's schema)")
    return [frontend for table in tables for frontend in table]


def _read_family(family: Family) -> list[ProgrammedFrontend] | None:
    """Returns the frontends of a family; None without a table that this version can read.

    Each attempt opens a new socket, so that leftover messages of an interrupted dump are not read.
    """
    netlink = Ruleset()
    try:
        specs = present_specs(netlink, family)
        contents = KernelTable(netlink, family, specs).read()
        if contents is not None and contents.fits(specs, family):
            return list(programmed_frontends(contents, family))
    finally:
        netlink.close()
    return None


def service_rows(frontends: Iterable[ProgrammedFrontend]) -> list[Row]:
    """Returns one row per service port and family."""
    groups: defaultdict[tuple[str, str], list[ProgrammedFrontend]] = defaultdict(list)
    for frontend in frontends:
        groups[frontend.service, frontend.family.value].append(frontend)
    rows = []
    for (service, family), members in sorted(groups.items()):
        counted = [one.connections for one in members if one.connections is not None]
        rows.append(
            {
                "service": service,
                "family": family,
                "addresses": list(dict.fromkeys(_address_text(one) for one in members)),
                "backends": len({backend for one in members for backend in one.backends}),
                "connections": sum(counted) if counted else None,
            }
        )
    return rows


def frontend_rows(frontends: Iterable[ProgrammedFrontend]) -> list[Row]:
    """Returns one row per address, port and scope."""
    return [
        {
            "service": one.service,
            "family": one.family.value,
            "kind": one.kind,
            "frontend": _address_text(one),
            "for": one.scope,
            "action": _action(one),
            "connections": one.connections,
        }
        for one in frontends
    ]


def backend_rows(frontends: Iterable[ProgrammedFrontend]) -> list[Row]:
    """Returns one row per slot of a frontend."""
    return [
        {
            "service": one.service,
            "family": one.family.value,
            "frontend": _address_text(one),
            "for": one.scope,
            "slot": slot,
            "backend": endpoint_text(address, port),
            "connections": None if one.picked is None or slot >= len(one.picked) else one.picked[slot],
        }
        for one in frontends
        for slot, (address, port) in enumerate(one.backends)
    ]


def _address_text(one: ProgrammedFrontend) -> str:
    return f"{endpoint_text(one.address, one.port)}/{one.protocol}"


def _action(one: ProgrammedFrontend) -> str:
    if one.action != "pick":
        return one.action
    sticky = f", sticky {one.sticky_seconds} s" if one.sticky_seconds is not None else ""
    return f"pick of {len(one.backends)}{sticky}"
