"""All that is wrong right now, from every part that says so, and what came and went since it was last asked."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from nodeagent.model.problem import Problem

_NAMED = 5
"""Of the objects that a listener failed over, this many are named."""

logger = logging.getLogger(__name__)


class ProblemChanges(NamedTuple):
    """What came and what went, each sorted."""

    new: tuple[Problem, ...]
    solved: tuple[Problem, ...]


class ProblemListener(Protocol):
    """Hears of problems once when they come and once when they go; must not block. What it raises is logged."""

    def problems_changed(self, changes: ProblemChanges) -> None: ...


class ProblemBoard:
    """Each source replaces what it said before. A problem that two sources have is one; it goes when both drop it."""

    def __init__(self, listeners: Iterable[ProblemListener] = ()) -> None:
        self._listeners = list(listeners)
        self._by_source: dict[str, tuple[Problem, ...]] = {}
        self._known: frozenset[Problem] = frozenset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that are there now, of all sources, each once, sorted."""
        return tuple(sorted(self._known))

    def add(self, listener: ProblemListener) -> None:
        """Let the listener hear of every change from now on, after those who do already."""
        self._listeners.append(listener)

    def reporter(self, source: str) -> Callable[[Iterable[Problem]], None]:
        """What takes all problems of this source, each time it is called."""
        return partial(self.replace, source)

    def replace(self, source: str, problems: Iterable[Problem]) -> None:
        """Take these as all problems of this source; tells the listeners if that makes a difference."""
        latest = tuple(problems)
        if latest == self._by_source.get(source, ()):
            return
        self._by_source[source] = latest
        known = frozenset(problem for said in self._by_source.values() for problem in said)
        changes = ProblemChanges(tuple(sorted(known - self._known)), tuple(sorted(self._known - known)))
        self._known = known
        if changes.new or changes.solved:
            for listener in self._listeners:
                try:
                    listener.problems_changed(changes)
                except Exception:
                    about = ", ".join(sorted({problem.subject for problem in (*changes.new, *changes.solved)})[:_NAMED])
                    logger.exception("%s failed over the problems of %s", type(listener).__name__, about)
