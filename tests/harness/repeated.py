"""A change that is made again and again while a test looks at what must not suffer from it."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Repeated:
    """Calls `change` with 1, 2, 3, … in a thread of its own while its block runs. count: how many calls have begun."""

    def __init__(self, change: Callable[[int], None]) -> None:
        self.count = 0
        self._change = change
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="repeated change")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            self.count += 1
            self._change(self.count)
