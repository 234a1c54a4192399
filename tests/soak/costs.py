"""What a fault cost, from what the clients saw, and how a document's table gets it. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodeagent.lab.lab_plan import SERVICE
from tests.soak.records import Attempt, Held, Lookup

LOSS, RECOVERY = -3, -2
"""The columns of the table that are measured, from its end."""


@dataclass(frozen=True, slots=True)
class Cost:
    """loss, recovery: for the two columns."""

    loss: str
    recovery: str


def cost_of(
    attempts: Sequence[Attempt],
    held: Sequence[Held],
    lookups: Sequence[Lookup],
    began: float,
    served: float,
    others_failed: int,
    others: int,
) -> Cost:
    """Returns what a fault cost that began at a time. attempts, held, lookups: what ended since before it. served: seconds from its end
    until a change was in effect. others: lookups of names outside the cluster."""
    new = [one for one in attempts if one.began >= began - 1.0 and one.service == SERVICE]
    failed = [one for one in new if one.failure]
    open_then = [one for one in held if one.opened < began < one.ended]
    lost = [one for one in open_then if one.failure]
    names = [one for one in lookups if one.ended >= began]
    unanswered = [one for one in names if not one.answer]
    loss = (
        f"{len(failed)} of {len(new)} new, {len(lost)} of {len(open_then)} open connections; "
        f"{len(unanswered) + others_failed} of {len(names) + others} lookups"
    )
    last = max((one.began for one in failed), default=0.0)
    outage = f"last failure {last - began:.1f} s after the fault began; " if failed else ""
    return Cost(loss, f"{outage}in effect {served:.1f} s after its end")


def write_costs(text: str, costs: Mapping[str, Cost], about: str) -> str:
    """Returns the document with the measured columns of each fault that is named in the first column, and about what machine."""
    lines = []
    for line in text.splitlines():
        cells = line.split(" | ")
        found = re.match(r"\| `([a-z-]+)`", line)
        if found and found[1] in costs:
            cells[LOSS], cells[RECOVERY] = costs[found[1]].loss, costs[found[1]].recovery
            lines.append(" | ".join(cells))
        elif line.startswith("Measured on "):
            lines.append(f"Measured on {about}.")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"
