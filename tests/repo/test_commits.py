"""Subjects of commits: the area first, then an order, in 72 characters."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = "f989980"
"""Commits up to this one are from before the rule."""

LONGEST = 72
SUBJECT = re.compile(r"[a-z][a-z0-9./_-]*(?:, [a-z][a-z0-9./_-]*)*: [a-z`\"'0-9A-Z]")
NO_ORDER = re.compile(r": (?:[a-z]+ed|[a-z]+ing|this|there|what|when|who|where|if|it) ")
VERBS = frozenset({"bring", "shed", "embed", "feed", "need", "seed", "speed"})
"""Orders that look like another form of a verb."""


def fault_of(subject: str) -> str:
    """What is wrong with a subject; empty when it is good."""
    if len(subject) > LONGEST:
        return f"has {len(subject)} characters, {LONGEST} is the limit"
    if not SUBJECT.match(subject):
        return "does not begin with an area, as in `dns: bound TCP connections per client`"
    found = NO_ORDER.search(subject)
    if found and found[0].split()[1] not in VERBS:
        return "does not go on with an order, as in `dns: bound TCP connections per client`"
    return "ends with a full stop" if subject.endswith(".") else ""


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_subjects_of_commits() -> None:
    known = subprocess.run(["git", "cat-file", "-e", BASE], cwd=ROOT, capture_output=True, check=False)
    if known.returncode:
        shallow = subprocess.run(
            ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, check=False
        )
        assert shallow.stdout.strip() != b"false", (
            f"{BASE} is not in the history: it was rewritten, so name the new commit"
        )
        missing = "the history is not here: an archive, or a clone without depth"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    listed = git("log", "--no-merges", "--format=%h %s", f"{BASE}..HEAD").splitlines()
    faults = {line: fault for line in listed if (fault := fault_of(line.partition(" ")[2]))}
    assert not faults


@pytest.mark.parametrize(
    ("subject", "good"),
    [
        pytest.param("dns: bound TCP connections per client", True, id="good"),
        pytest.param("tests, lab: bring up a cluster", True, id="two areas"),
        pytest.param("Tell who opens the page nothing of the looks before", False, id="no area"),
        pytest.param("dns: bounded TCP connections", False, id="past"),
        pytest.param("dns: there are bounds", False, id="a statement"),
        pytest.param(f"dns: {'bound ' * 13}", False, id="long"),
        pytest.param("dns: bound connections.", False, id="full stop"),
    ],
)
def test_a_bad_subject_is_recognised(subject: str, good: bool) -> None:
    assert (fault_of(subject) == "") is good
