"""Which files of the package something passes on its way: for tests that hold the lists of docs/architecture.md."""

from collections.abc import Collection
from pathlib import Path
from types import FrameType

import nodeagent

PACKAGE = str(Path(nodeagent.__file__).parent) + "/"


class CalledFiles:
    """A profile function (`sys.setprofile`) that follows calls of the package, until the function `end` is called.

    points, end: qualified names. within: only calls below a function of this file count, and the end after the first point; other
    work of the same thread does not. handed_through: files on the call stack at the points and at the end, in order.
    entered: files with a function that was called.
    """

    def __init__(self, points: Collection[str], end: str, *, within: str = "") -> None:
        self.handed_through: dict[str, None] = {}
        self.entered: dict[str, None] = {}
        self._points = points
        self._end = end
        self._within = within
        self._ended = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or self._ended or (file := file_of(frame)) is None:
            return
        name = frame.f_code.co_qualname
        stack = _stack(frame)
        if name == self._end and (self.handed_through or not self._within):
            self._ended = True
        elif self._within and self._within not in stack:
            return
        self.entered[file] = None
        if self._ended or name in self._points:
            self.handed_through |= dict.fromkeys(stack)


def file_of(frame: FrameType | None) -> str | None:
    """Returns the path of the frame's file within the package; None if it is not of the package."""
    path = frame.f_code.co_filename if frame is not None else ""
    return path.removeprefix(PACKAGE) if path.startswith(PACKAGE) else None


def _stack(frame: FrameType) -> list[str]:
    """The files of the package on the call stack, the outermost first."""
    found: list[str] = []
    at: FrameType | None = frame
    while at is not None:
        if (file := file_of(at)) is not None:
            found.append(file)
        at = at.f_back
    return found[::-1]
