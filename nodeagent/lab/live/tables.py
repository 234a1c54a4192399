"""What a lab tells, as text: loads, faults, and tables in general. Pure but for rich, which aligns columns."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from nodeagent.lab.latencies import merged, percentile
from nodeagent.lab.live.requests import FaultReport, LoadSample, TargetSample

PIPE_WIDTH = 1000


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Aligned columns; those of `right` (by number) are numbers."""
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
    """One look, for a log."""
    latencies = merged(target.latencies for target in sample.targets)
    speed = " ".join(f"p{share:g}={milliseconds(percentile(latencies, share / 100))}" for share in (50, 99))
    return f"{sample.seconds:6.1f} s  answered={sample.answered} failed={sample.failed} {speed}"


def load_text(sample: LoadSample, previous: LoadSample | None) -> str:
    """Ways in and who answered, with the rate since `previous` (None: since the beginning)."""
    before = {(one.client, one.target): one for one in previous.targets} if previous else {}
    seconds = sample.at - previous.at if previous else sample.seconds
    ways = table(
        ("FROM", "TO", "ANSWERED", "FAILED", "PER SECOND", "P50", "P90", "P99", "SLOWEST", "FAILURES"),
        (_of_way(one, before.get((one.client, one.target)), seconds) for one in sample.targets),
        right=range(2, 9),
    )
    names: Counter[str] = Counter()
    for target in sample.targets:
        names.update(target.names)
    answers = table(
        ("POD", "ANSWERS", "SHARE"),
        ((name, str(count), f"{count / sample.answered:.1%}") for name, count in sorted(names.items())),
        right=(1, 2),
    )
    return f"{ways}\n\n{answers}\n\n{load_line(sample).strip()}"


def _of_way(one: TargetSample, before: TargetSample | None, seconds: float) -> Sequence[str]:
    done = one.answered + one.failed - (before.answered + before.failed if before else 0)
    speeds = [milliseconds(percentile(one.latencies, share)) for share in (0.5, 0.9, 0.99)]
    counts = (str(one.answered), str(one.failed), f"{done / max(seconds, 0.001):.0f}")
    return (one.client, one.target, *counts, *speeds, milliseconds(one.slowest), listed_counts(one.failures))


def fault_table(reports: Sequence[FaultReport]) -> str:
    """What each fault cost, and how it was lost."""
    rows = table(
        ("FAULT", "CONNECTIONS", "FAILED", "RECOVERY", "AFTER IT WAS RIGHTED", "OPEN ONES KEPT", "REMARK"),
        (_of_fault(report) for report in reports),
        right=(1, 2),
    )
    lost = [
        (report.kind, str(count), way, listed_counts(report.failures))
        for report in reports
        for way, count in report.by_target.items()
    ]
    where = table(("FAULT", "FAILED", "FROM → TO", "HOW, ALL TOGETHER"), lost, right=(1,))
    return "\n\n".join([rows, where] if lost else [rows])


def _of_fault(report: FaultReport) -> Sequence[str]:
    never = "not seen"
    after = "" if report.after is None else f"{report.after:.2f} s"
    return (
        report.what,
        str(report.attempts),
        str(report.failed),
        never if report.recovery is None else f"{report.recovery:.2f} s",
        never if report.recovery is None else after,
        f"{report.kept} of {report.held}",
        report.note,
    )


def listed_counts(counts: Mapping[str, int]) -> str:
    """``3 timeout, 1 refused``."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def milliseconds(seconds: float | None) -> str:
    """Two digits or so."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.2f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
