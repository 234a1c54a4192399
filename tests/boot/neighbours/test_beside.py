"""Some of what `make neighbours` measures, for every run of `make test-boot`; and that the measurement sees what it is for."""

from pathlib import Path

import pytest

from .programs import PROGRAMS, Program
from .trial import IT_FIRST, WE_FIRST, Outcome, as_installed, changes, measure

BY_NAME = {program.name: program for program in PROGRAMS}
OF_SYSTEMCTL = 1.0
"""Seconds that it takes on a busy machine until the rules are flushed, for the last time of a restart."""
CLOSING = "nft 'add table inet rude; add chain inet rude f { type filter hook forward priority 0; policy drop; }'"
RUDE = Program(
    "rude",
    "",
    start="nft add table inet rude",
    reload=f"{CLOSING}; sleep 0.5; nft delete table inet rude; nft add table inet rude",
    restart="true",
    stop="true",
)
"""It closes `forward` for half a second when it is reloaded, to pods as well as to Services."""


def by_itself(outcome: Outcome) -> bool:
    """Whether what was lost was lost without the Service, too."""
    return all(step.direct for step in outcome.steps if step.lost)


@pytest.mark.parametrize(
    ("name", "order", "ownership"),
    [
        ("firewalld", IT_FIRST, "owned"),
        ("docker.io", WE_FIRST, "plain"),
        ("podman", IT_FIRST, "plain"),
        ("libvirt", WE_FIRST, "owned"),
        ("nftables.service", WE_FIRST, "owned"),
    ],
)
def test_neither_harms_the_other(name: str, order: str, ownership: str, tmp_path: Path) -> None:
    outcome = measure(BY_NAME[name], order, ownership, tmp_path)
    assert by_itself(outcome), outcome.steps
    assert (outcome.held, outcome.changed, outcome.left) == (0, (), ())
    assert outcome.verdict.startswith("healthy")


def test_a_plain_table_that_is_flushed_is_back_within_a_second(tmp_path: Path) -> None:
    outcome = measure(BY_NAME["nftables.service"], WE_FIRST, "plain", tmp_path)
    assert all(step.until < 1 + OF_SYSTEMCTL for step in outcome.steps), outcome.steps
    assert (outcome.held, outcome.changed, outcome.left) == (0, (), ())
    assert outcome.verdict.startswith("healthy")


@pytest.mark.parametrize("name", [program.name for program in PROGRAMS if program.closes])
def test_who_closes_the_way_is_named_and_the_cure_opens_it(name: str, tmp_path: Path) -> None:
    program = BY_NAME[name]
    before, after = as_installed(program, tmp_path)
    assert before
    assert all(program.closes in stopped.verdict for stopped in before), before
    assert after == []


def test_losses_without_the_agent_are_measured(tmp_path: Path) -> None:
    """A control of the measurement."""
    outcome = measure(RUDE, IT_FIRST, "owned", tmp_path)
    (lossy,) = [step for step in outcome.steps if step.lost]
    assert lossy.what == "reload"
    assert lossy.direct
    assert lossy.seconds >= 0.5


def test_differences_are_found() -> None:
    assert changes("restart", ["a", "b"], ["b", "c"]) == ["restart: - a", "restart: + c"]
    assert changes("restart", None, ["c"]) == []
