"""Results of a lab as text: loads, faults, and tables in general. Pure except for rich, which aligns columns."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from nodeagent.lab.fault_verdict import NotDone
from nodeagent.lab.net.latencies import merged, percentile
from nodeagent.lab.supervisor_messages import FaultReport, FaultVerdict, LoadSample, WayCost, WaySample
from nodeagent.model.addresses import Family

COST_HEADINGS = ("FAULT", "WHAT HAPPENED", "FAILED", "OF", "OUTAGE", "RECOVERY", "SLOWEST", "OPEN KEPT", "VERDICT")
PIPE_WIDTH = 1000
NEVER = "not seen"
FEW_SECONDS = 0.01
"""Below this, milliseconds have decimals."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Returns aligned columns; those in `right` (by number) are right-aligned."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        grid.add_column(heading, justify="right" if number in right else "left", no_wrap=True, overflow="ignore")
    for row in rows:
        grid.add_row(*row)
    console = Console(highlight=False, markup=False, width=PIPE_WIDTH)
    with console.capture() as capture:
        console.print(grid)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def load_line(sample: LoadSample) -> str:
    """Returns one sample as a line for a log."""
    latencies = merged(way.latencies for way in sample.ways)
    speed = " ".join(f"p{share:g}={milliseconds(percentile(latencies, share / 100))}" for share in (50, 99))
    return f"{sample.seconds:6.1f} s  answered={sample.answered} failed={sample.failed} {speed}"


def load_text(sample: LoadSample, previous: LoadSample | None, *, grouped: bool = False) -> str:
    """Returns the sum, the paths and the answers by pod, with the rate since `previous` (None: since the start).
    grouped: one row for all paths of the same kind, if there is little room."""
    before = _rows_of(previous, grouped=grouped) if previous else {}
    seconds = sample.at - previous.at if previous else sample.seconds
    ways = table(
        ("FROM", "TO", "ANSWERED", "FAILED", "PER SECOND", "P50", "P90", "P99", "SLOWEST", "FAILURES"),
        ((*row, *_of_way(one, before.get(row), seconds)) for row, one in _rows_of(sample, grouped=grouped).items()),
        right=range(2, 9),
    )
    names: Counter[str] = Counter()
    for one in sample.ways:
        names.update(one.names)
    answers = table(
        ("POD", "ANSWERS", "SHARE"),
        ((name, str(count), f"{count / sample.answered:.1%}") for name, count in sorted(names.items())),
        right=(1, 2),
    )
    return f"{load_line(sample).strip()}\n\n{ways}\n\n{answers}"


def _rows_of(sample: LoadSample, *, grouped: bool) -> dict[tuple[str, str], WaySample]:
    """Returns the samples by the texts of the first two columns."""
    if not grouped:
        return {(one.way.client, one.way.text): one for one in sample.ways}
    groups: dict[tuple[str, str], list[WaySample]] = {}
    for one in sample.ways:
        groups.setdefault((one.way.role, f"{one.way.kind} {one.way.family}"), []).append(one)
    return {row: _together(ones) for row, ones in groups.items()}


def _together(ones: Sequence[WaySample]) -> WaySample:
    """Merges several paths into one."""
    names: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for one in ones:
        names.update(one.names)
        failures.update(one.failures)
    latencies = merged(one.latencies for one in ones)
    return WaySample(ones[0].way, dict(names), dict(failures), latencies, max(one.slowest for one in ones))


def _of_way(one: WaySample, before: WaySample | None, seconds: float) -> Sequence[str]:
    done = one.answered + one.failed - (before.answered + before.failed if before else 0)
    speeds = [milliseconds(percentile(one.latencies, share)) for share in (0.5, 0.9, 0.99)]
    counts = (str(one.answered), str(one.failed), f"{done / max(seconds, 0.001):.0f}")
    return (*counts, *speeds, milliseconds(one.slowest if one.answered else None), listed_counts(one.failures))


def fault_table(results: Sequence[FaultReport | NotDone]) -> str:
    """Returns what each fault cost, what failed, the evidence for each fault, and what was not done and why."""
    reports = [result for result in results if isinstance(result, FaultReport)]
    costs = table(
        COST_HEADINGS,
        map(cost_row, results),
        right=range(2, 8),
    )
    parts = [costs]
    if changed := [report for report in reports if report.slowest_change is not None]:
        slowest = ((one.kind, str(one.changes), f"{one.slowest_change:.1f} s") for one in changed)
        parts.append(table(("CHANGES AT", "APPLIED", "SLOWEST"), slowest, right=(1, 2)))
    if lost := [row for report in reports for row in _failed_ways(report)]:
        headings = ("FAILED AT", "FROM", "TO", *(family.value for family in Family), "HOW")
        parts.append(table(headings, lost, right=(3, 4)))
    if seen := [(report.kind, report.seen) for report in reports if report.seen]:
        parts.append(table(("FAULT", "EVIDENCE THAT IT WAS IN EFFECT"), seen))
    if undone := [(result.kind, result.reason) for result in results if isinstance(result, NotDone)]:
        parts.append(table(("NOT DONE", "WHY"), undone))
    return "\n\n".join([*parts, summary(results)])


def summary(results: Sequence[FaultReport | NotDone]) -> str:
    """Returns one line for all faults."""
    reports = [result for result in results if isinstance(result, FaultReport)]
    attempts, failed = sum(report.attempts for report in reports), sum(report.failed for report in reports)
    words = f"{len(reports)} {'fault' if len(reports) == 1 else 'faults'}, {attempts} connections, {failed} failed"
    return f"{words}; {shortcomings(results) or 'all is as it must be'}"


def shortcomings(results: Sequence[FaultReport | NotDone]) -> str:
    """Returns what went wrong; empty if nothing did."""
    bad = [
        f"{one.kind} {one.verdict.lower()}" for one in results if isinstance(one, FaultReport) and not one.verdict.good
    ]
    bad += [f"{one.kind} not done" for one in results if isinstance(one, NotDone)]
    return f"not as it must be: {', '.join(bad)}" if bad else ""


def cost_row(report: FaultReport | NotDone) -> Sequence[str]:
    """Returns the cells below COST_HEADINGS."""
    if isinstance(report, NotDone):
        return (report.kind, "", "", "", "", "", "", "", "NOT DONE")
    seconds = (report.outage, report.recovery)
    times = [NEVER if each is None else f"{each:.2f} s" for each in seconds]
    spotless = not report.failed and report.verdict is not FaultVerdict.NOT_RECOVERED
    return (
        report.kind,
        report.what,
        str(report.failed),
        str(report.attempts),
        *(("-", "-") if spotless else times),
        milliseconds(report.slowest or None),
        f"{report.kept} of {report.held}",
        report.verdict.value,
    )


def _failed_ways(report: FaultReport) -> Iterator[Sequence[str]]:
    """Yields a row for each kind of client and address on which connections failed, with both families."""
    groups: dict[tuple[str, str], list[WayCost]] = {}
    for cost in report.ways:
        groups.setdefault((cost.way.role, cost.way.kind), []).append(cost)
    for (role, kind), costs in groups.items():
        how: Counter[str] = Counter()
        for cost in costs:
            how.update(cost.failures)
        if how:
            yield (report.kind, role, kind, *(_share(costs, family) for family in Family), listed_counts(how))


def _share(costs: Iterable[WayCost], family: Family) -> str:
    """Returns "FAILED of ATTEMPTS"; empty if no path has this family."""
    chosen = [cost for cost in costs if cost.way.family == family.value]
    return f"{sum(c.failed for c in chosen)} of {sum(c.attempts for c in chosen)}" if chosen else ""


def listed_counts(counts: Mapping[str, int]) -> str:
    """Returns a text like ``3 timeout, 1 refused``."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def milliseconds(seconds: float | None) -> str:
    """Returns the time in milliseconds as text, with about two digits; `-` for None."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.2f} ms" if seconds < FEW_SECONDS else f"{seconds * 1000:.0f} ms"
