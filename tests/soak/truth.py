"""The spans of a run: when each view had which members, as far as the one who changes objects can say."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.soak.records import Span


@dataclass(slots=True)
class _Open:
    may_from: float
    sure_from: float


class Truth:
    """compute: returns all (view, member) that hold now. A change is in effect from somewhen between its beginning, when the request is
    sent, and its end, when it was answered."""

    def __init__(self, compute: Callable[[], Iterable[tuple[str, str]]]) -> None:
        self._compute = compute
        self._open: dict[tuple[str, str], _Open] = {}
        self._closed: list[Span] = []

    @contextmanager
    def change(self) -> Iterator[None]:
        """What the block does changes objects."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._take(began, time.monotonic())

    def _take(self, began: float, ended: float) -> None:
        now = set(self._compute())
        for key in [key for key in self._open if key not in now]:
            opened = self._open.pop(key)
            self._closed.append(Span(*key, opened.may_from, opened.sure_from, began, ended))
        for key in now:
            self._open.setdefault(key, _Open(began, ended))

    def spans(self) -> tuple[Span, ...]:
        """Returns every span since `forget`, and those that are not over."""
        return (*self._closed, *(Span(*key, opened.may_from, opened.sure_from) for key, opened in self._open.items()))

    def forget(self, before: float) -> None:
        """Forgets the spans that were over before a time."""
        self._closed = [span for span in self._closed if span.may_until >= before]
