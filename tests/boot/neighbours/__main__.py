"""Measures every program of `programs.py` in all settings and writes the tables of docs/neighbours.md: `make neighbours`.

--only NAME measures one; what the others had is kept in build/neighbours.json. --closed looks only at what they close as they are installed.
--write measures nothing.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from tests.boot.container.conftest import ROOT

from .programs import PROGRAMS, Program
from .report import Measured, rewrite
from .trial import ORDERS, OWNERSHIPS, Stopped, as_installed, measure, version_of

KEPT = ROOT / "build" / "neighbours.json"
PAGE = ROOT / "docs" / "neighbours.md"


def read() -> dict[str, Measured]:
    """What was measured before, by name."""
    return msgspec.json.decode(KEPT.read_bytes(), type=dict[str, Measured]) if KEPT.exists() else {}


def keep(found: dict[str, Measured]) -> None:
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_bytes(msgspec.json.encode(found))


def in_turn(program: Program, reported: Callable[[str], None]) -> Measured:
    """All settings of one program, each on a machine of its own."""
    with tempfile.TemporaryDirectory(prefix="nodeagent-neighbours-") as directory:
        places = (Path(directory, str(number)) for number in range(1 + len(ORDERS) * len(OWNERSHIPS)))

        def place() -> Path:
            found = next(places)
            found.mkdir()
            return found

        closed, after = as_installed(program, place())
        reported(f"{program}: closes {len(closed)} ways, {len(after)} after the cure")
        outcomes = {}
        for order in ORDERS:
            for ownership in OWNERSHIPS:
                outcome = measure(program, order, ownership, place())
                outcomes[f"{order}, {ownership}"] = outcome
                reported(f"{program}, {order}, {ownership}: lost {outcome.lost} of {outcome.attempts}; {outcome}")
    return Measured(version_of(program), closed, after, outcomes)


def closes(program: Program) -> tuple[list[Stopped], list[Stopped]]:
    """What one closes as it is installed, and what is closed after the cure."""
    with tempfile.TemporaryDirectory(prefix="nodeagent-neighbours-") as directory:
        return as_installed(program, Path(directory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a program by name; repeatable")
    parser.add_argument("--closed", action="store_true", help="only what they close as they are installed")
    parser.add_argument("--write", action="store_true", help="write the tables from what was measured before")
    options = parser.parse_args()
    found = read()
    for program in PROGRAMS:
        if options.write or (options.only and program.name not in options.only):
            continue
        if options.closed:
            closed, after = closes(program)
            found[program.name] = replace(found[program.name], closed=closed, after=after)
        else:
            found[program.name] = in_turn(program, lambda line: print(line, flush=True))
        keep(found)
    PAGE.write_text(
        rewrite(PAGE.read_text(), [(program, found[program.name]) for program in PROGRAMS if program.name in found])
    )


if __name__ == "__main__":
    main()
