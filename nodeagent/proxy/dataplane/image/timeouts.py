"""Decides which affinity timeouts are exact to the second (pure).

Each timeout in use has two chains, because the kernel takes a timeout from the rule that learns. So their number is bounded: while
EXACT different ones are in use, a further one is rounded up, by an eighth at most, to one of some hundred values.
"""

from collections import Counter

from msgspec.structs import replace

from nodeagent.model.frontend import Frontend, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem

EXACT = 64


def rounded_up(seconds: int) -> int:
    """Returns the next number of four binary digits followed by zeros."""
    step = 1 << max(0, seconds.bit_length() - 4)
    return -(-seconds // step) * step


class AffinityTimeouts:
    """Tracks which service has which timeout in one family; the first ones are exact."""

    def __init__(self) -> None:
        self.problems: dict[ObjectKey, Problem] = {}
        self._exact: Counter[int] = Counter()
        self._held: dict[ObjectKey, frozenset[int]] = {}

    def knows(self, key: ObjectKey) -> bool:
        """Returns whether a service has a timeout."""
        return key in self._held or key in self.problems

    def admit(self, key: ObjectKey, state: ServiceState | None) -> ServiceState | None:
        """Takes in the new state of a service; returns it with the timeouts that it gets."""
        if held := self._held.pop(key, None):
            self._exact.subtract(held)
            self._exact += Counter()
        self.problems.pop(key, None)
        if state is None:
            return None
        wanted = {found.affinity_seconds for found in state.frontends if found.affinity_seconds is not None}
        if not wanted:
            return state
        given = {seconds: self._take(key, seconds) for seconds in sorted(wanted)}
        changed = {seconds: longer for seconds, longer in given.items() if longer != seconds}
        if not changed:
            return state
        self.problems[key] = _problem(key, changed)
        return replace(state, frontends=tuple(_with(frontend, changed) for frontend in state.frontends))

    def _take(self, key: ObjectKey, seconds: int) -> int:
        if seconds not in self._exact and len(self._exact) >= EXACT:
            return rounded_up(seconds)
        self._exact[seconds] += 1
        self._held[key] = self._held.get(key, frozenset()) | {seconds}
        return seconds


def _with(frontend: Frontend, changed: dict[int, int]) -> Frontend:
    seconds = frontend.affinity_seconds
    return frontend if seconds not in changed else replace(frontend, affinity_seconds=changed[seconds])


def _problem(key: ObjectKey, changed: dict[int, int]) -> Problem:
    longer = ", ".join(f"{seconds} s becomes {given} s" for seconds, given in changed.items())
    detail = f"session affinity lasts longer: {longer}; {EXACT} other timeouts are in use on this node"
    return Problem(f"Service {key}", "AffinityTimeoutRounded", detail)
