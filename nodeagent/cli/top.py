"""`nodeagent top`: Services, or endpoints, by new connections per second, from the kernel's counters."""

import shutil
import time
from collections.abc import Mapping

import click

from nodeagent.cli.columns import Column
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, Failure
from nodeagent.cli.kernel_reading import kernel_failures
from nodeagent.cli.keyboard import Keyboard, keyboard
from nodeagent.cli.rows import is_terminal, output_option, print_rows
from nodeagent.cli.top_screen import SORTED, Screen, apply_key, footer, keys_of, select_rows
from nodeagent.diagnosis.explain.rates import Rate, RateTracker, sparkline
from nodeagent.model.addresses import Family, endpoint_text, unpack_address
from nodeagent.model.text import printable
from nodeagent.proxy.dataplane.driver.kernel_counts import read_kernel_counts
from nodeagent.runtime.interrupts import prompt_signal_handling

_BETWEEN = " "
_AROUND = 5
"""Lines of the terminal that are kept free for the heading and the footer."""
COLUMNS = (
    Column("service", "SERVICE"),
    Column("rate", "CONN/S", number=True),
    Column("total", "COUNTED", number=True),
    Column("recent", "RECENT", leaves=1),
)


_ENDPOINT = Column("endpoint", "ENDPOINT")


class _CountedTable:
    """A family's table for `read_kernel_counts`, without counts from elsewhere."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.uncounted: Mapping[str, Mapping[bytes, int]] = {}


@click.command(
    "top",
    epilog=examples(
        "nodeagent top", "nodeagent top --sort total", "nodeagent top --endpoints", "nodeagent top --once -o json"
    ),
)
@click.option(
    "--every", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True, help="Seconds between readings."
)
@click.option("--sort", "by", type=click.Choice(list(SORTED)), default="rate", show_default=True)
@click.option(
    "--rows", type=click.IntRange(1), help="Number of Services (default: as many as fit the terminal, or all)."
)
@click.option("--endpoints", is_flag=True, help="Show endpoints of Services; needs dataplane.endpointCounters.")
@click.option(
    "--once", is_flag=True, help="Print one table after one interval, and end; always on for json, yaml and name."
)
@output_option
def top_command(*, every: float, by: str, rows: int | None, endpoints: bool, once: bool, output: str) -> None:
    """Show Services by new connections a second, read from the kernel, until Ctrl-C; the agent need not run.

    On a terminal these keys work: s the next order, S the previous one, r reverse, / filter (Enter keeps it, Esc removes
    it), ? the keys, q quit.

    Exit codes: 0, 1 failed or nothing is counted, 3 no permission, 130 ended by Ctrl-C.
    """
    once = once or output not in ("table", "wide")
    rates = RateTracker()
    screen = Screen(by)
    rates.update(_counters(endpoints=endpoints), time.monotonic())
    keys = keyboard() if is_terminal() and not once and output in ("table", "wide") else None
    if keys is not None:
        with keys, prompt_signal_handling():
            _interact(keys, screen, rates, every=every, rows=rows, endpoints=endpoints, output=output)
        return
    while True:
        with prompt_signal_handling():
            time.sleep(every)
        found = rates.update(_counters(endpoints=endpoints), time.monotonic())
        if is_terminal() and not once:
            click.clear()
        _print(select_rows(found, screen, rows or _fitting()), output, endpoints=endpoints)
        if once:
            return


def _interact(
    keys: Keyboard, screen: Screen, rates: RateTracker, *, every: float, rows: int | None, endpoints: bool, output: str
) -> None:
    """Shows the table until `q` is pressed. Reads the counters every `every` seconds, and redraws after each key."""
    found: tuple[Rate, ...] = ()
    next_look = time.monotonic() + every
    while not screen.ended:
        shown = select_rows(found, screen, rows or _fitting())
        click.clear()
        _print(shown, output, endpoints=endpoints)
        click.echo("\n".join(footer(screen, len(shown), len(found))), nl=False)
        typed = keys.wait(max(0.0, next_look - time.monotonic()))
        for key in keys_of(typed):
            screen = apply_key(screen, key)
        if not screen.ended and time.monotonic() >= next_look:
            found = rates.update(_counters(endpoints=endpoints), time.monotonic())
            next_look = time.monotonic() + every
    click.echo()


def _fitting() -> int | None:
    return max(1, shutil.get_terminal_size().lines - _AROUND) if is_terminal() else None


def _print(found: list[Rate], output: str, *, endpoints: bool) -> None:
    rows: list[dict[str, object]] = [
        {
            **dict(zip(("service", "endpoint"), one.service.split(_BETWEEN), strict=False)),
            "rate": round(one.per_second, 1),
            "total": one.total,
            "recent": sparkline(one.recent) if output in ("table", "wide") else list(one.recent),
        }
        for one in found
    ]
    columns = (COLUMNS[0], _ENDPOINT, *COLUMNS[1:]) if endpoints else COLUMNS
    print_rows(columns, rows, output, wide=frozenset(), name="endpoint" if endpoints else "service")


def _counters(*, endpoints: bool) -> dict[tuple[str, bytes], int]:
    """Returns connections by service port and address, or by service port and endpoint. Raises Failure."""
    with kernel_failures():
        counts = read_kernel_counts([_CountedTable(family) for family in Family])
    if endpoints:
        picked = {
            (f"{printable(name.decode(errors='replace'))}{_BETWEEN}{_endpoint(value)}", b""): times
            for found_in in counts.endpoints
            for (name, value), times in found_in.by_endpoint.items()
        }
        if not picked:
            raise Failure("endpoints are not counted here: set dataplane.endpointCounters to true", FAILED)
        return picked
    found = {
        (printable(name.decode(errors="replace")), frontends.family.value.encode() + key): connections
        for frontends in counts.frontends
        for key, (connections, name) in frontends.by_key.items()
    }
    if not found:
        raise Failure("nothing is counted here: no table nodeagent, or dataplane.counters is off", FAILED)
    return found


def _endpoint(value: bytes) -> str:
    """Returns `ADDRESS:PORT` of an element's value."""
    return endpoint_text(unpack_address(value[:-4]), int.from_bytes(value[-4:-2], "big"))
