"""Collects all present problems from every part of the agent, and reports what appeared and disappeared."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from nodeagent.model.problem import Problem

_NAMED = 5
"""This many of the objects on which a listener failed are named."""

logger = logging.getLogger(__name__)


class ProblemChanges(NamedTuple):
    """The problems that appeared and those that disappeared, each sorted."""

    new: tuple[Problem, ...]
    solved: tuple[Problem, ...]


class ProblemListener(Protocol):
    """Is notified of problems once when they appear and once when they disappear; must not block. What it raises is logged."""

    def problems_changed(self, changes: ProblemChanges) -> None: ...


class ProblemBoard:
    """Each source replaces its own problems. A problem of two sources is one; it disappears when both drop it."""

    def __init__(self, listeners: Iterable[ProblemListener] = ()) -> None:
        self._listeners = list(listeners)
        self._by_source: dict[str, tuple[Problem, ...]] = {}
        self._known: frozenset[Problem] = frozenset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All present problems, of all sources, each once, sorted."""
        return tuple(sorted(self._known))

    def add(self, listener: ProblemListener) -> None:
        """Notifies this listener of every change from now on, after the present ones."""
        self._listeners.append(listener)

    def reporter(self, source: str) -> Callable[[Iterable[Problem]], None]:
        """Returns a function that replaces all problems of this source."""
        return partial(self.replace, source)

    def replace(self, source: str, problems: Iterable[Problem]) -> None:
        """Replaces all problems of this source; notifies the listeners if that makes a difference."""
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
                    logger.exception("%s failed to handle the problems of %s", type(listener).__name__, about)
