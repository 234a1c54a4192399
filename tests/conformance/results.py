"""What `e2e.test` reported, read from its JUnit files."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX = "[It] "
LABELS = re.compile(r" \[sig-[a-z-]+(, [^\]]*)?\]$")
"""Behind the name of a spec, which has them in itself."""
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """One spec's. why: the first line of what a failed or skipped one said."""

    spec: str
    verdict: str
    seconds: float
    why: str


def read(paths: Iterable[Path]) -> dict[str, Result]:
    """By the name of the spec; of several results of one spec the last."""
    return {result.spec: result for path in paths for result in _cases(path)}


def names(path: Path) -> list[str]:
    """Of all specs in a report that were not filtered out, also of a dry run."""
    return sorted({result.spec for result in _cases(path)})


def _cases(path: Path) -> Iterator[Result]:
    for case in ET.parse(path).getroot().iter("testcase"):
        name, status = case.get("name", ""), case.get("status", "")
        skipped = case.find("skipped")
        why = skipped.get("message", "") if skipped is not None else ""
        # A spec that was filtered out has this word alone, one that skips itself says why.
        if not name.startswith(PREFIX) or status == "pending" or why == "skipped":
            continue
        failure = case.find("failure")
        failure = failure if failure is not None else case.find("error")
        verdict = SKIPPED if skipped is not None else FAILED if failure is not None else PASSED
        said = why or (failure.get("message") or failure.text or "" if failure is not None else "")
        yield Result(
            LABELS.sub("", name.removeprefix(PREFIX)), verdict, float(case.get("time", "0")), _first_line(said)
        )


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "").removeprefix("skipped - ")
