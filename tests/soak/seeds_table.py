"""The row of a seed, and how a document's table of seeds gets it. Pure."""

from collections.abc import Mapping
from itertools import takewhile

from tests.soak.run import Summary

HEADING, MEASURED = "| Seed |", "Seeds measured on "


def row_of(seed: str, storage: str, summary: Summary, violated: int) -> str:
    """Returns the row of a run. violated: how many laws."""
    cells = (
        *(
            seed,
            storage,
            len(summary.settled),
            summary.steps,
            summary.attempts,
            summary.held,
            summary.lookups,
            violated,
        ),
        f"{summary.slowest:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def write_rows(text: str, rows: Mapping[str, str], about: str) -> str:
    """Returns the document with these rows, by seed, in its table of seeds, and about what machine. Rows of other seeds stay."""
    lines = [f"{MEASURED}{about}." if line.startswith(MEASURED) else line for line in text.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith(HEADING)) + 2
    old = list(takewhile(lambda line: line.startswith("|"), lines[first:]))
    merged = {line.split(" ")[1]: line for line in old} | dict(rows)
    lines[first : first + len(old)] = [merged[seed] for seed in sorted(merged, key=lambda seed: (len(seed), seed))]
    return "\n".join(lines) + "\n"
