"""Which parts receive a pass, in which order, and when the agent is said to be ready."""

from dataclasses import dataclass, field

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.proxy.observe.pass_observers import PassObservers
from nodeagent.proxy.observe.problem_board import ProblemBoard
from nodeagent.proxy.observe.status_line import StatusLine

WORKS = PassReport(0.0, 0.1, {Family.IPV4: TableReport()}, services=1)
FAILS = PassReport(0.0, 0.1, {Family.IPV4: TableReport(error="busy")}, services=1)


@dataclass
class RecordingObserver:
    """A listener, a reader of the status and a board, with what they received in one list."""

    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.board = ProblemBoard()
        self.observers = PassObservers(
            (self, Clumsy()),
            self.board,
            StatusLine("node-a"),
            self,
            ready=lambda status: self.log.append(f"ready {status}"),
            later=(Clumsy(), Later(self.log)),
        )
        self.board.add(self.observers)

    def passed(self, report: PassReport) -> None:
        self.log.append("passed")

    def status(self, text: str) -> None:
        self.log.append(text)


@dataclass
class Later:
    log: list[str]

    def passed(self, report: PassReport) -> None:
        self.log.append("passed later")


class Clumsy:
    def passed(self, report: PassReport) -> None:
        raise RuntimeError("a bug")


def test_readiness_is_reported_once_after_the_first_pass_that_programmed_a_family() -> None:
    observer = RecordingObserver()
    for report in (FAILS, WORKS, WORKS):
        observer.observers.passed(report)
    assert observer.log == [
        "passed",
        "1 service, 0 endpoints on node-a (nothing programmed); programming IPv4 fails, retrying",
        "passed later",
        "passed",
        "ready 1 service, 0 endpoints on node-a (IPv4)",
        "passed later",
        "passed",
        "1 service, 0 endpoints on node-a (IPv4)",
        "passed later",
    ]


def test_problems_change_the_line_without_a_pass_once_it_is_ready() -> None:
    observer = RecordingObserver()
    observer.board.replace("sources", [Problem("file a.yaml:1", "Unreadable", "is not YAML")])
    assert observer.log == [], "no part has received a pass yet"
    observer.observers.passed(WORKS)
    observer.board.replace("sources", [])
    assert observer.log[1:] == [
        "ready 1 service, 0 endpoints on node-a (IPv4); 1 problem",
        "passed later",
        "1 service, 0 endpoints on node-a (IPv4)",
    ]
