"""Reads keys of the terminal as they are pressed."""

import codecs
import os
import select
import sys
import termios
import time
import tty
from typing import Self

_CHUNK = 1024


class Keyboard:
    """Reads keys without waiting for Enter and without echo. Restores the terminal at the end (context manager)."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._open = True

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """Returns typed characters as soon as there are any; empty after `seconds`."""
        if not self._open:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            return ""
        read = os.read(self._descriptor, _CHUNK)
        self._open = bool(read)
        return self._decoder.decode(read)


def keyboard() -> Keyboard | None:
    """Returns the keyboard on standard input; None if that is no terminal or this process is in the background."""
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        return None
    descriptor = sys.stdin.fileno()
    try:
        watched = os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # it is not the terminal of this session, so no other process group reads it
        watched = True
    return Keyboard(descriptor) if watched else None
