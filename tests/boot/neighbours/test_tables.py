"""The tables of docs/neighbours.md, as they are written."""

import pytest

from .__main__ import PAGE
from .programs import PROGRAMS
from .report import BEGIN, END, Measured, rewrite
from .trial import ORDERS, OWNERSHIPS, Outcome, Step, Stopped

WELL = Outcome((Step("reload", 500, 0, 0.0, 0),), 0, (), (), "healthy: 6 of 6 endpoints used")
BADLY = Outcome(
    (Step("reload", 500, 7, 1.04, 2), Step("stop", 400, 1, 0.0, 0)),
    2,
    ("purge: - a",),
    ("table ip nodeagent",),
    "broken: all",
)
SETTINGS = [f"{order}, {ownership}" for order in ORDERS for ownership in OWNERSHIPS]


def test_a_row_says_what_was_lost_when_and_what_was_left() -> None:
    outcomes = {**dict.fromkeys(SETTINGS, WELL), SETTINGS[0]: BADLY}
    stopped = [
        Stopped("caller → 10.96.0.1:80", "dropped: 10.244.1.200 -> 10.96.0.1:80/TCP, because forward: x; open it")
    ]
    page = rewrite(f"before\n{BEGIN}old\n{END}after\n", [(PROGRAMS[1], Measured("0.36", stopped, [], outcomes))])
    assert page.startswith(f"before\n{BEGIN}| Neighbour |")
    assert page.endswith(f"{END}after\n")
    assert "old" not in page
    row, closed = (line for line in page.splitlines() if line.startswith("| ufw"))
    assert "| 8 of 900; reload 7 in 1.0 s (2); stop 1 in 0.0 s (0); broken: all | 0 of 500 |" in row
    assert row.endswith("| 2 lost | purge: - a | table ip nodeagent |")
    assert "| dropped, because forward: x; open it | `ufw route allow in on cni0 out on cni0`<br>" in closed


def test_a_page_without_a_place_for_them_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no <!-- measured: begin -->"):
        rewrite("a page\n", [])


def test_the_page_has_every_program() -> None:
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert [program.name for program in PROGRAMS if f"| {program.name}" not in text] == []
