"""Keys of the terminal, one by one as they are pressed."""

import codecs
import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Self

_CHUNK = 1024


class Keyboard:
    """Reads keys without waiting for Enter and without showing them; at the end the terminal is as it was."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._open = True

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """What was typed, as soon as something is; empty after so many seconds."""
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
    """That of the person who watches; None where standard input is no terminal or is another's to read."""
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        return None
    descriptor = sys.stdin.fileno()
    try:
        watched = os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # a terminal that is not the one of this session: nobody else reads it
        watched = True
    return Keyboard(descriptor) if watched else None
