"""Keeps what `make fuzz` found: inputs that reach code which no seed and no kept one reaches; `make fuzz-keep`, no test of its own.

What fails its target is not kept, but named: it becomes a test, and a line of the corpus, with the mend.
"""

import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import nodeagent
from tests.harness.fuzzing.mutation import CORPORA, Target
from tests.harness.fuzzing.targets import TARGETS

FOUND = Path("build/fuzz")
OURS = str(Path(nodeagent.__file__).parent)
LONGEST_BYTES = 4096
"""Of an input: a longer one costs more in each `make test` than its branch is worth."""

Branches = set[tuple[str, int, int]]


@contextmanager
def branches() -> Iterator[Branches]:
    """Collects the steps from line to line that are taken inside, in our own files."""
    taken: Branches = set()

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        before = 0

        def step(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal before
            if event == "line":
                taken.add((frame.f_code.co_filename, before, frame.f_lineno))
                before = frame.f_lineno
            return step

        return step

    sys.settrace(enter)
    try:
        yield taken
    finally:
        sys.settrace(None)


def reached(target: Target, data: bytes) -> Branches | None:
    """The branches of one input; None if it fails."""
    try:
        with branches() as taken:
            target.check(data)
    except Exception as error:  # noqa: BLE001 - whatever it is, somebody has to look at it
        print(f"{target.name}: {data[:60]!r} fails: {type(error).__name__}: {error}")
        return None
    return taken


def keep(target: Target) -> None:
    kept = target.corpus()
    known: Branches = set()
    for data in (*target.seeds, *kept):
        known |= reached(target, data) or set()
    place = FOUND / target.file_name
    found = (
        sorted({path.read_bytes() for path in place.iterdir()}, key=lambda data: (len(data), data))
        if place.exists()
        else []
    )
    for data in found:
        taken = reached(target, data) if len(data) <= LONGEST_BYTES else None
        if taken is not None and not taken <= known:
            known |= taken
            kept.append(data)
    if kept:
        CORPORA.mkdir(exist_ok=True)
        (CORPORA / target.file_name).write_bytes(b"".join(b64encode(data) + b"\n" for data in kept))
    print(f"{target.name}: {len(kept)} of {len(found)} inputs, {sum(map(len, kept))} bytes")


if __name__ == "__main__":
    for one in TARGETS:
        if one.file_name in sys.argv[1:] or not sys.argv[1:]:
            keep(one)
