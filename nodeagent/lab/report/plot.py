"""A fault as SVG: how long each connection took, what failed, and the time in which the fault was in effect. Pure.

Every connection is drawn at its start. The SVG loads nothing from elsewhere and has a dark mode.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape

from nodeagent.lab.report.axis import Decades, Linear
from nodeagent.lab.supervisor_messages import FaultRecord, FaultReport, Recorded

WIDTH, HEIGHT = 960, 480
LEFT, RIGHT = 76, 940
LATENCY_TOP, LATENCY_FOOT = 64, 290
RATE_TOP, RATE_FOOT = 322, 436
BIN = 0.25
"""Seconds for one bar."""
LEAST_LATENCY, MOST_LATENCY = 1e-4, 10.0
_STYLE = """
svg { background: #fff; font: 13px system-ui, sans-serif; --text: #17202b; --soft: #566273; --line: #d7dde5; --blue: #2f6fc2; --red: #b3261e; --fault: #c98a1b; }
@media (prefers-color-scheme: dark) { svg { background: #1a212b; --text: #e6ebf2; --soft: #9aa7b8; --line: #2e3846; --blue: #7fb2ff; --red: #ff8a80; --fault: #f0b95a; } }
text { fill: var(--soft); } .title { fill: var(--text); font-size: 16px; font-weight: 600; } .mark { fill: var(--text); }
.grid { stroke: var(--line); } .fault { fill: var(--fault); fill-opacity: .16; } .edge { stroke: var(--fault); stroke-width: 1.5; stroke-dasharray: 4 3; }
.answered { stroke: var(--blue); stroke-width: 3; stroke-linecap: round; stroke-opacity: .6; fill: none; } .failed { stroke: var(--red); stroke-width: 1.5; fill: none; }
.bar { fill: var(--blue); fill-opacity: .55; } .bar.lost { fill: var(--red); fill-opacity: 1; }
"""


def plot(report: FaultReport, record: FaultRecord) -> str:
    """Returns the SVG of one fault."""
    moments = [one.at for one in record.connections]
    least, most = min([-1.0, *moments]), max([record.ended, 1.0, *moments])
    times = Linear(least, most, LEFT, RIGHT)
    parts = [*_frame(report), *_fault(times, record.ended), *_times(times)]
    parts += _latencies(times, record.connections)
    parts += _rates(times, record.connections)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(_summary(report))}"><style>{_STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _summary(report: FaultReport) -> str:
    return f"{report.what}: {report.verdict.value}, {report.failed} of {report.attempts} connections failed"


def _frame(report: FaultReport) -> Iterator[str]:
    yield _text(LEFT, 24, _summary(report), "title")
    yield _text(LEFT, LATENCY_TOP - 8, "until the answer")
    yield _text(LEFT, RATE_TOP - 8, "connections begun a second; red: failed")


def _fault(times: Linear, ended: float) -> Iterator[str]:
    """Yields the shaded time of the fault, with labels at its begin and end."""
    begins, ends = times.place(0.0), times.place(ended)
    for top, foot in ((LATENCY_TOP, LATENCY_FOOT), (RATE_TOP, RATE_FOOT)):
        yield f'<rect class="fault" x="{_n(begins)}" y="{top}" width="{_n(ends - begins)}" height="{foot - top}"/>'
    for name, place in (("begins", begins), ("ends", ends)):
        yield f'<line class="edge" id="fault-{name}" x1="{_n(place)}" x2="{_n(place)}" y1="{LATENCY_TOP}" y2="{RATE_FOOT}"/>'
    yield _text(begins - 4, 44, "fault begins", "mark", "end")
    yield _text(ends + 4, 44, f"over after {ended:.2f} s", "mark", "end" if ends > RIGHT - 120 else "start")


def _times(times: Linear) -> Iterator[str]:
    for tick in times.ticks():
        place = _n(times.place(tick))
        for top, foot in ((LATENCY_TOP, LATENCY_FOOT), (RATE_TOP, RATE_FOOT)):
            yield f'<line class="grid" x1="{place}" x2="{place}" y1="{top}" y2="{foot}"/>'
        yield _text(times.place(tick), RATE_FOOT + 18, f"{tick:g} s", anchor="middle")
    yield _text(
        (LEFT + RIGHT) / 2, HEIGHT - 8, "seconds after the fault at which a connection was begun", anchor="middle"
    )


def _latencies(times: Linear, connections: Iterable[Recorded]) -> Iterator[str]:
    """Yields a point for each answer, and a cross for each failure at the time when it was given up."""
    scale = Decades(LEAST_LATENCY, MOST_LATENCY, LATENCY_FOOT, LATENCY_TOP)
    for tick in scale.ticks():
        place = scale.place(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{_n(place)}" y2="{_n(place)}"/>'
        yield _text(LEFT - 8, place + 4, f"{tick:g} s" if tick >= 1 else f"{tick * 1000:g} ms", anchor="end")
    answered, failed = list[str](), list[str]()
    for one in connections:
        x, y = times.place(one.at), scale.place(one.seconds)
        if one.failure:
            failed.append(f"M{_n(x - 3)},{_n(y - 3)}l6,6m0,-6l-6,6")
        else:
            answered.append(f"M{_n(x)},{_n(y)}h0")
    yield f'<path class="answered" d="{"".join(answered) or "M0,0"}"/>'
    yield f'<path class="failed" d="{"".join(failed) or "M0,0"}"/>'


def _rates(times: Linear, connections: Iterable[Recorded]) -> Iterator[str]:
    """Yields bars of answered connections, and above them of failed ones."""
    bins: Counter[tuple[int, bool]] = Counter()
    for one in connections:
        bins[int(one.at // BIN), bool(one.failure)] += 1
    slots = sorted({slot for slot, _ in bins})
    most = max((bins[slot, False] + bins[slot, True] for slot in slots), default=1) / BIN
    scale = Linear(0.0, most, RATE_FOOT, RATE_TOP)
    for value in (0.0, most / 2, most):
        yield f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{_n(scale.place(value))}" y2="{_n(scale.place(value))}"/>'
        yield _text(LEFT - 8, scale.place(value) + 4, f"{value:g}", anchor="end")
    for slot in slots:
        left, right = times.place(slot * BIN), times.place((slot + 1) * BIN)
        floor = 0.0
        for lost in (False, True):
            top = floor + bins[slot, lost] / BIN
            if top > floor:
                high, low = scale.place(top), scale.place(floor)
                kind = "bar lost" if lost else "bar"
                size = f'width="{_n(max(0.5, right - left - 1))}" height="{_n(low - high)}"'
                yield f'<rect class="{kind}" x="{_n(left)}" y="{_n(high)}" {size}/>'
            floor = top


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def _n(value: float) -> str:
    """Returns the number rounded to a tenth, as short as possible."""
    return f"{round(value, 1):g}"
