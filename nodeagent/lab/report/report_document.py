"""A run of faults as one HTML page with the plots beside it, and the raw numbers as CSV. Pure."""

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from html import escape

from nodeagent.lab.fault_verdict import NotDone
from nodeagent.lab.report_tables import COST_HEADINGS, cost_row, listed_counts, summary
from nodeagent.lab.supervisor_messages import FaultRecord, FaultReport

COLUMNS = ("seconds_after_fault", "client", "role", "kind", "address", "port", "family", "pod", "seconds", "failure")
_STYLE = """
:root { color-scheme: light dark; --back: #f6f7f9; --card: #fff; --text: #17202b; --soft: #566273; --line: #d7dde5; --good: #14713d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #11161d; --card: #1a212b; --text: #e6ebf2; --soft: #9aa7b8; --line: #2e3846; --good: #5fd08d; --bad: #ff8a80; } }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--back); color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; } p { color: var(--soft); margin: .3rem 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; background: var(--card); border: 1px solid var(--line); }
td, th { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; } th { color: var(--soft); font-weight: 500; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; } img { max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: .5rem; }
"""


def page(results: Sequence[FaultReport | NotDone], drawn: Collection[str]) -> str:
    """Returns what `nodeagent lab fault` prints, with the plots. drawn: the faults that have one."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>faults of a lab</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{escape(summary(results))}</h1>\n"
        f'<div class="scroll"><table><thead><tr>{_cells("th", COST_HEADINGS)}</tr></thead><tbody>\n'
        + "\n".join(_row(result) for result in results)
        + "\n</tbody></table></div>\n"
        + "\n".join(part for result in results for part in _section(result, drawn))
        + "\n</body></html>\n"
    )


def rows(record: FaultRecord) -> str:
    """Returns every connection as CSV, in the order of their starts."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in record.connections:
        way = record.ways[one.way]
        place = (way.client, way.role, way.kind, way.address, way.port, way.family)
        writer.writerow((f"{one.at:.6f}", *place, one.pod, f"{one.seconds:.6f}", one.failure))
    return text.getvalue()


def _row(result: FaultReport | NotDone) -> str:
    good = isinstance(result, FaultReport) and result.verdict.good
    *cells, verdict = cost_row(result)
    return f'<tr>{_cells("td", cells)}<td class="{"good" if good else "bad"}">{escape(verdict)}</td></tr>'


def _section(result: FaultReport | NotDone, drawn: Collection[str]) -> Iterator[str]:
    """Yields a fault with its plot, its failures, and what showed that it was in effect."""
    if isinstance(result, NotDone):
        yield f"<h2>{escape(result.kind)}: not done</h2><p>{escape(result.reason)}</p>"
        return
    yield f"<h2>{escape(result.kind)}: {escape(result.what)}</h2>"
    if result.seen:
        yield f"<p>In effect, because: {escape(result.seen)}</p>"
    if result.failed:
        yield f"<p>Failed: {escape(listed_counts(result.failures))}</p>"
    if result.kind in drawn:
        name = escape(result.kind)
        yield f'<img src="{name}.svg" alt="latency and failures over time"><p><a href="{name}.csv">{name}.csv</a></p>'


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
