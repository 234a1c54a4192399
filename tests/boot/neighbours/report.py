"""The tables of docs/neighbours.md, from what was measured (pure)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .programs import Program
from .trial import ORDERS, OWNERSHIPS, Outcome, Stopped

BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
NOTHING = "–"


@dataclass(frozen=True)
class Measured:
    """Of one program. outcomes: by order and ownership."""

    version: str
    closed: list[Stopped]
    after: list[Stopped]
    outcomes: dict[str, Outcome]


def rewrite(page: str, found: Sequence[tuple[Program, Measured]]) -> str:
    """The page with these results in the place of those that it had. Raises ValueError where it has no such place."""
    before, middle, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not middle or not end:
        raise ValueError(f"the page has no {BEGIN.strip()}, or no {END.strip()} below it")
    return before + BEGIN + "\n".join([*settings_table(found), "", *closed_table(found)]) + "\n" + END + after


def settings_table(found: Sequence[tuple[Program, Measured]]) -> list[str]:
    """New connections lost, for each setting."""
    settings = [f"{order}, {ownership}" for order in ORDERS for ownership in OWNERSHIPS]
    head = ["Neighbour", "Version", *settings, "Held", "Changed by us", "Left of us"]
    lines = [row(head), row(["---"] * len(head))]
    for program, measured in found:
        outcomes = [measured.outcomes[setting] for setting in settings]
        held = sum(outcome.held for outcome in outcomes)
        changed = sorted({line for outcome in outcomes for line in outcome.changed})
        left = sorted({line for outcome in outcomes for line in outcome.left})
        name = f"{program.name}: {program.remark}"
        cells = [name, measured.version or NOTHING, *map(setting_cell, outcomes)]
        lines.append(
            row([*cells, f"{held} lost" if held else "all", *("; ".join(one) or "nothing" for one in (changed, left))])
        )
    return lines


def setting_cell(outcome: Outcome) -> str:
    """Lost of all, and during what; in brackets what was lost on the way to a pod without the Service."""
    parts = [f"{outcome.lost} of {outcome.attempts}"]
    parts += [f"{step.what} {step.lost} in {step.seconds:.1f} s ({step.direct})" for step in outcome.steps if step.lost]
    if not outcome.verdict.startswith("healthy"):
        parts.append(outcome.verdict)
    return "; ".join(parts)


def closed_table(found: Sequence[tuple[Program, Measured]]) -> list[str]:
    """Who closes which way as it is installed, what `trace` says, and what opens it."""
    lines = [row(["Neighbour", "Closed", "`nodeagent trace` says", "Opened by"]), row(["---"] * 4)]
    for program, measured in found:
        if measured.closed:
            ways = ", ".join(stopped.way for stopped in measured.closed)
            cure = (
                "not opened"
                if measured.after
                else "<br>".join(f"`{part.strip()}`" for part in (program.shown or program.cure).split("; "))
            )
            lines.append(row([program.name, ways, because(measured.closed[-1].verdict), cure]))
    return lines


def because(verdict: str) -> str:
    """The reason of a verdict, without the ends of the connection."""
    return re.sub(r"^(\w+): .*?(?=because |as far as )", r"\1, ", verdict)


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
