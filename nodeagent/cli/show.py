"""`nodeagent show`: what is programmed, read from the kernel."""

import json
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from nodeagent.cli.columns import Column, lay_out
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.dataplane.errors import DataplaneError, KernelUnclear, NotPermitted
from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.inspection import ProgrammedFrontend, programmed_frontends
from nodeagent.dataplane.nft.kernel_table import KernelTable
from nodeagent.dataplane.nft.ruleset import Ruleset
from nodeagent.model.addresses import Family, endpoint_text

Row = dict[str, Any]
Found = TypeVar("Found")


READ_ATTEMPTS = 20
READ_PAUSE_SECONDS = 0.1
"""Between attempts to read while the rules change."""

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
        Column("backend", "BACKEND"),
    ),
}


@click.command("show")
@click.argument("what", type=click.Choice(list(COLUMNS)), default="services")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def show_command(what: str, output: str) -> None:
    """Print services, frontends or backends as the kernel holds them; the agent need not run.

    CONNECTIONS counts new connections since the frontend is programmed, over changes and restarts of the agent.
    Exit codes: 0, 1 failed or nothing is programmed, 3 no permission.
    """
    try:
        frontends = read_frontends()
    except NotPermitted as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except (DataplaneError, OSError) as error:
        raise Failure(str(error), FAILED) from error
    rows = {"services": service_rows, "frontends": frontend_rows, "backends": backend_rows}[what](frontends)
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    print_table(COLUMNS[what], rows)


def read_frontends() -> list[ProgrammedFrontend]:
    """Everything programmed in both families. Raises a DataplaneError when it cannot be read, or is not there."""
    tables = [found for family in Family if (found := patiently(partial(_read_family, family))) is not None]
    if not tables:
        raise DataplaneError("nothing is programmed here: no table nodeagent (of this version's schema)")
    return [frontend for table in tables for frontend in table]


def patiently(read: Callable[[], Found], pause: Callable[[float], None] = time.sleep) -> Found:
    """What `read` returns, repeated while changes to the rules interrupt it. Raises KernelUnclear after many times."""
    for _ in range(READ_ATTEMPTS - 1):
        try:
            return read()
        except KernelUnclear:
            pause(READ_PAUSE_SECONDS)
    return read()


def _read_family(family: Family) -> list[ProgrammedFrontend] | None:
    """One family's frontends; None without a table that this version can read.

    Each attempt has a socket of its own: what the kernel still had to say on the last one is not waited for.
    """
    netlink = Ruleset()
    try:
        # Counters are part of a set's shape; a table made without them is as good.
        for counters in (True, False):
            specs = {spec.name: spec for spec in schema.set_specs(counters=counters)}
            contents = KernelTable(netlink, family, specs).read()
            if contents is not None and contents.fits(specs, family):
                return list(programmed_frontends(contents, family))
    finally:
        netlink.close()
    return None


def service_rows(frontends: Iterable[ProgrammedFrontend]) -> list[Row]:
    """One row per service port and family."""
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
                "addresses": list(dict.fromkeys(_place(one) for one in members)),
                "backends": len({backend for one in members for backend in one.backends}),
                "connections": sum(counted) if counted else None,
            }
        )
    return rows


def frontend_rows(frontends: Iterable[ProgrammedFrontend]) -> list[Row]:
    """One row per address and port, and scope."""
    return [
        {
            "service": one.service,
            "family": one.family.value,
            "kind": one.kind,
            "frontend": _place(one),
            "for": one.scope,
            "action": _action(one),
            "connections": one.connections,
        }
        for one in frontends
    ]


def backend_rows(frontends: Iterable[ProgrammedFrontend]) -> list[Row]:
    """One row per slot of a frontend."""
    return [
        {
            "service": one.service,
            "family": one.family.value,
            "frontend": _place(one),
            "for": one.scope,
            "slot": slot,
            "backend": endpoint_text(address, port),
        }
        for one in frontends
        for slot, (address, port) in enumerate(one.backends)
    ]


def _place(one: ProgrammedFrontend) -> str:
    return f"{endpoint_text(one.address, one.port)}/{one.protocol}"


def _action(one: ProgrammedFrontend) -> str:
    if one.action != "pick":
        return one.action
    sticky = f", sticky {one.sticky_seconds} s" if one.sticky_seconds is not None else ""
    return f"pick of {len(one.backends)}{sticky}"


def print_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Aligned columns that fit the terminal; whole lines into a pipe or a file."""
    layout = lay_out(columns, rows, shutil.get_terminal_size().columns if _is_terminal() else None)
    heading, *lines = layout.lines
    click.echo("\n".join([click.style(heading, bold=True), *lines]))
    if layout.dropped:
        names, word = ", ".join(layout.dropped), "column" if len(layout.dropped) == 1 else "columns"
        click.echo(f"nodeagent: note: no room for the {word} {names}; -o json has everything", err=True)


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
