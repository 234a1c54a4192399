"""Another program that changes what is ours often within seconds is a problem, until it has stopped."""

from collections.abc import Callable, Iterable

from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport
from nodeagent.proxy.observe.interference import TIMES, WITHIN_SECONDS, Interference


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.problems: tuple[Problem, ...] = ()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._interference = Interference(self._report, self._later)

    def _report(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)

    def _later(self, seconds: float, action: Callable[[], None], /) -> None:
        self._due.append((self.now + seconds, action))

    def passed(self, *disturbed: str) -> None:
        self._interference.passed(PassReport(self.now, self.now, {}, disturbed=frozenset(disturbed)))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self._due and min(self._due)[0] <= end:
            self._due.sort(key=lambda one: one[0])
            self.now, action = self._due.pop(0)
            action()
        self.now = end


def test_seldom_is_no_problem() -> None:
    scene = Scene()
    for _ in range(3 * TIMES):
        scene.passed("IPv4")
        scene.wait(1.1 * WITHIN_SECONDS / (TIMES - 1))
        assert scene.problems == ()


def test_often_is_one_until_it_has_stopped() -> None:
    scene = Scene()
    for _ in range(TIMES):
        assert scene.problems == ()
        scene.passed("IPv4", "interface")
        scene.passed()
        scene.wait(1.0)
    assert [one.subject for one in scene.problems] == ["table nodeagent (IPv4)", "service interface"]
    assert {one.reason for one in scene.problems} == {"Interfered"}
    scene.wait(2 * WITHIN_SECONDS)
    assert scene.problems == ()
