"""A disk of a few MiB, seen by one thread and those that it starts; it is gone with them."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from nodeagent.lab.net.network_namespaces import inside

CLONE_FS, CLONE_NEWNS = 0x200, 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000

T = TypeVar("T")


def on_small_disk(place: Path, mebibytes: int, function: Callable[[], T]) -> T:
    """What `function` returns or raises, called where the directory `place` is a disk of that size. Needs root."""

    def work() -> T:
        library = ctypes.CDLL(None, use_errno=True)
        _must(library.unshare(CLONE_FS | CLONE_NEWNS))
        _must(library.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
        _must(library.mount(b"none", bytes(place), b"tmpfs", 0, f"size={mebibytes}m".encode()))
        return function()

    return inside(None, work)


def fill(place: Path) -> Path:
    """Takes all the room there is on the disk of a directory; the file that has it."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 * 1024))
        except OSError:
            return filler


def _must(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
