"""Problems of many sources: each is reported once when it comes and once when it goes."""

import pytest

from nodeagent.model.problem import Problem
from nodeagent.proxy.observe.problem_board import ProblemBoard, ProblemChanges

A, B = Problem("Service a/a", "X", "a"), Problem("Service b/b", "X", "b")


class Heard:
    """Remembers what it received."""

    def __init__(self) -> None:
        self.changes: list[ProblemChanges] = []

    def problems_changed(self, changes: ProblemChanges) -> None:
        self.changes.append(changes)


def test_a_source_replaces_its_earlier_problems() -> None:
    heard = Heard()
    board = ProblemBoard([heard])
    board.replace("one", [A])
    board.replace("one", [B])
    board.replace("one", [])
    assert heard.changes == [((A,), ()), ((B,), (A,)), ((), (B,))]


def test_saying_the_same_again_is_no_news() -> None:
    heard = Heard()
    board = ProblemBoard([heard])
    board.replace("one", [A, B])
    board.replace("one", [B, A])
    assert heard.changes == [((A, B), ())]


def test_a_problem_of_two_sources_goes_with_the_last() -> None:
    heard = Heard()
    board = ProblemBoard([heard])
    board.replace("one", [A])
    board.replace("two", [A])
    board.replace("one", [])
    assert board.problems == (A,)
    board.replace("two", [])
    assert heard.changes == [((A,), ()), ((), (A,))]


class Fails:
    """A listener with a defect."""

    def problems_changed(self, changes: ProblemChanges) -> None:
        raise KeyError("defect")


def test_a_failing_listener_is_logged_with_the_objects_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = Heard()
    board = ProblemBoard([Fails(), heard])
    board.replace("one", [A])
    assert heard.changes == [((A,), ())]
    assert [record.getMessage() for record in caplog.records] == ["Fails failed to handle the problems of Service a/a"]
