"""A signal that the interpreter has noted, while a system call waits that it did not end."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from nodeagent.runtime.interrupts import LATEST_SECONDS, prompt_signal_handling


class HandlerRan(Exception):
    """What the handler raises."""


def on_signal(*_: object) -> None:
    raise HandlerRan


class Wait:
    """A read that ends when `seconds` have passed since the signal was noted, if that does not end it."""

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._ended = threading.Event()
        self._seconds = seconds
        self._waiting = Path(f"/proc/self/task/{threading.get_native_id()}/syscall")
        self._read, self._write = os.pipe()
        self._note = threading.Thread(target=self._note_signal)

    def __call__(self) -> None:
        self._note.start()
        os.read(self._read, 1)

    def _note_signal(self) -> None:
        while self._waiting.read_text().split()[1:2] != [hex(self._read)]:
            time.sleep(0.001)
        ctypes.pythonapi.PyErr_SetInterruptEx(int(signal.SIGUSR1))
        self.over = not self._ended.wait(self._seconds)
        os.write(self._write, b"x")

    def close(self) -> None:
        self._ended.set()
        self._note.join()
        os.close(self._read)
        os.close(self._write)


@contextmanager
def waiting(seconds: float) -> Iterator[Wait]:
    before = signal.signal(signal.SIGUSR1, on_signal)
    wait = Wait(seconds)
    try:
        yield wait
    finally:
        wait.close()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("seconds", "context", "late"),
    [
        pytest.param(60.0, prompt_signal_handling, False, id="heeded"),
        pytest.param(LATEST_SECONDS * 1.5, nullcontext, True, id="as it is"),
    ],
)
def test_an_interrupt_is_received_during_the_wait(
    seconds: float, context: Callable[[], AbstractContextManager[None]], late: bool
) -> None:
    with waiting(seconds) as wait:
        with pytest.raises(HandlerRan), context():
            wait()
        assert wait.over is late


def test_the_timer_of_somebody_else_goes_on() -> None:
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    handler = signal.getsignal(signal.SIGALRM)
    with prompt_signal_handling():
        assert signal.getitimer(signal.ITIMER_REAL)[1] == LATEST_SECONDS
    assert signal.getsignal(signal.SIGALRM) is handler
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= before, "this test has one itself: its time limit"
