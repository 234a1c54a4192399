"""`nodeagent show`: what is programmed, read from the kernel."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.dataplane.errors import DataplaneError, NotPermitted
from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.inspection import ProgrammedFrontend, programmed_frontends
from nodeagent.dataplane.nft.kernel_table import KernelTable
from nodeagent.dataplane.nft.netlink import NetlinkSocket
from nodeagent.model.addresses import Family

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: the row's key, the heading, whether it holds numbers."""

    key: str
    heading: str
    number: bool = False


COLUMNS = {
    "services": (
        Column("service", "SERVICE"),
        Column("family", "FAMILY"),
        Column("addresses", "ADDRESSES"),
        Column("backends", "BACKENDS", number=True),
        Column("connections", "CONNECTIONS", number=True),
    ),
    "frontends": (
        Column("service", "SERVICE"),
        Column("kind", "KIND"),
        Column("frontend", "FRONTEND"),
        Column("for", "FOR"),
        Column("action", "ACTION"),
        Column("connections", "CONNECTIONS", number=True),
    ),
    "backends": (
        Column("service", "SERVICE"),
        Column("frontend", "FRONTEND"),
        Column("for", "FOR"),
        Column("slot", "SLOT", number=True),
        Column("backend", "BACKEND"),
    ),
}


@click.command("show")
@click.argument("what", type=click.Choice(list(COLUMNS)), default="services")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def show_command(what: str, output: str) -> None:
    """Print services, frontends or backends as the kernel holds them; the agent need not run.

    CONNECTIONS counts new connections since the frontend last changed its number of endpoints.
    Exit codes: 0, 1 failed or nothing is programmed, 3 no permission.
    """
    try:
        frontends = read_frontends()
    except NotPermitted as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except DataplaneError as error:
        raise Failure(str(error), FAILED) from error
    rows = {"services": service_rows, "frontends": frontend_rows, "backends": backend_rows}[what](frontends)
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    _print_table(COLUMNS[what], rows)


def read_frontends() -> list[ProgrammedFrontend]:
    """Everything programmed in both families. Raises a DataplaneError when it cannot be read, or is not there."""
    netlink = NetlinkSocket()
    found: list[ProgrammedFrontend] = []
    tables = 0
    try:
        for family in Family:
            # Counters are part of a set's shape; a table made without them is as good.
            for counters in (True, False):
                specs = {spec.name: spec for spec in schema.set_specs(counters=counters)}
                contents = KernelTable(netlink, family, specs).read()
                if contents is not None and contents.fits(specs, family):
                    tables += 1
                    found += programmed_frontends(contents, family)
                    break
    finally:
        netlink.close()
    if not tables:
        raise DataplaneError("nothing is programmed here: no table nodeagent (of this version's schema)")
    return found


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
            "frontend": _place(one),
            "for": one.scope,
            "slot": slot,
            "backend": _endpoint(address, port),
        }
        for one in frontends
        for slot, (address, port) in enumerate(one.backends)
    ]


def _place(one: ProgrammedFrontend) -> str:
    return f"{_endpoint(one.address, one.port)}/{one.protocol}"


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _action(one: ProgrammedFrontend) -> str:
    if one.action != "pick":
        return one.action
    sticky = f", sticky {one.sticky_seconds} s" if one.sticky_seconds is not None else ""
    return f"pick of {len(one.backends)}{sticky}"


def _print_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Aligned columns on a terminal; whole, unwrapped lines into a pipe."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.heading, justify="right" if column.number else "left", no_wrap=True, overflow="ignore")
    for row in rows:
        table.add_row(*(_cell(row[column.key]) for column in columns))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=1000)
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
