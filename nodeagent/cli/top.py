"""`nodeagent top`: Services by new connections a second, from the counters in the kernel."""

import shutil
import time
from collections.abc import Mapping

import click

from nodeagent.cli.asking import examples, is_terminal, output_option, print_rows
from nodeagent.cli.columns import Column
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.dataplane.errors import DataplaneError, NotPermitted
from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.kernel_counts import read_kernel_counts
from nodeagent.explain.rates import Rate, Rates, sparkline
from nodeagent.model.addresses import Family
from nodeagent.model.text import printable

_AROUND = 4
"""Lines of a terminal that are not rows."""
COLUMNS = (
    Column("service", "SERVICE"),
    Column("rate", "CONN/S", number=True),
    Column("total", "COUNTED", number=True),
    Column("recent", "RECENT", leaves=1),
)
_SORTED = {
    "rate": lambda rate: (-rate.per_second, -rate.total, rate.service),
    "total": lambda rate: (-rate.total, rate.service),
    "name": lambda rate: rate.service,
}


class _Counted:
    """A family's table, of which nobody has other counts."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.uncounted: Mapping[str, Mapping[bytes, int]] = {schema.FRONTENDS: {}, schema.NODEPORTS: {}}


@click.command("top", epilog=examples("nodeagent top", "nodeagent top --sort total", "nodeagent top --once -o json"))
@click.option(
    "--every", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True, help="Seconds between looks."
)
@click.option("--sort", "by", type=click.Choice(list(_SORTED)), default="rate", show_default=True)
@click.option("--rows", type=click.IntRange(1), help="How many Services (default: what fits the terminal, or all).")
@click.option("--once", is_flag=True, help="Print one table, after one interval, and end.")
@output_option("table", "wide", "json", "yaml", "name")
def top_command(every: float, by: str, rows: int | None, once: bool, output: str) -> None:
    """Show Services by new connections a second, read from the kernel, until Ctrl-C; the agent need not run.

    Exit codes: 0, 1 failed or nothing is counted, 3 no permission, 130 ended by Ctrl-C.
    """
    rates = Rates()
    rates.look(_counters(), time.monotonic())
    while True:
        time.sleep(every)
        found = sorted(rates.look(_counters(), time.monotonic()), key=_SORTED[by])
        if is_terminal() and not once:
            click.clear()
        _print(found[: rows or _fitting()], output)
        if once:
            return


def _fitting() -> int | None:
    return max(1, shutil.get_terminal_size().lines - _AROUND) if is_terminal() else None


def _print(found: list[Rate], output: str) -> None:
    rows: list[dict[str, object]] = [
        {
            "service": one.service,
            "rate": round(one.per_second, 1),
            "total": one.total,
            "recent": sparkline(one.recent) if output in ("table", "wide") else list(one.recent),
        }
        for one in found
    ]
    print_rows(COLUMNS, rows, output, wide=frozenset(), name="service")


def _counters() -> dict[tuple[str, bytes], int]:
    """Connections by service port and place. Raises Failure."""
    try:
        counts = read_kernel_counts([_Counted(family) for family in Family])
    except NotPermitted as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except (DataplaneError, OSError) as error:
        raise Failure(str(error), FAILED) from error
    found = {
        (printable(name.decode(errors="replace")), frontends.family.value.encode() + key): connections
        for frontends in counts.frontends
        for key, (connections, name) in frontends.by_key.items()
    }
    if not found:
        raise Failure("nothing is counted here: no table nodeagent, or dataplane.counters is off", FAILED)
    return found
