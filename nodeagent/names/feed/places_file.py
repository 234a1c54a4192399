"""The file beside the unix socket that lists where names are answered.

Agent and process hold a shared lock on it. The kernel releases it when both have ended, so that the file of a killed
process is not mistaken for that of a later network namespace with the same number.
"""

import fcntl
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nodeagent.model.runtime_files import DNS_PLACES, DNS_SOCKETS

LOCKED = "# locked by those who answer at\n"
"""The first line. A file without it is from a version that did not lock; its socket may be in use."""
LOCK_TRIES = 20
BETWEEN_SECONDS = 0.001
"""Pause between tries: another process may be reading the file, or removing old ones, at that moment."""


def hold(path: Path, places: Iterable[object]) -> int | None:
    """Writes the places, one a line, and returns the open file that holds the lock, or None if the file cannot be made.
    It does not wait long, because names do not depend on it. The process gets this descriptor, which is read-only."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        for _ in range(LOCK_TRIES):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if _lock(descriptor, fcntl.LOCK_SH) and _is_same_file(descriptor, path):
                text = "".join((LOCKED, *(f"{place}\n" for place in places))).encode()
                os.pwrite(descriptor, text, 0)
                os.ftruncate(descriptor, len(text))
                holding = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                if _lock(holding, fcntl.LOCK_SH) and _is_same_file(holding, path):
                    os.close(descriptor)
                    return holding
                os.close(holding)
            os.close(descriptor)
            time.sleep(BETWEEN_SECONDS)
    return None


def read(path: Path) -> list[str]:
    """Returns the lines of a file; an empty list if no process holds it locked. Raises OSError."""
    with path.open() as file:
        if _lock(file.fileno(), fcntl.LOCK_EX):
            return []
        return [line for line in file.read().splitlines() if not line.startswith("#")]


def sweep(own: Path) -> list[Path]:
    """Removes files that no process holds any more, except our own, with their sockets. Returns the removed paths."""
    removed: list[Path] = []
    found: list[Path] = []
    with suppress(OSError):
        found = list(own.parent.glob(DNS_PLACES))
    for path in found:
        if path == own:
            continue
        with suppress(OSError):
            sock = path.with_suffix(DNS_SOCKETS)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                ours = os.pread(descriptor, len(LOCKED), 0) == LOCKED.encode() or not sock.exists()
                if ours and _lock(descriptor, fcntl.LOCK_EX) and _is_same_file(descriptor, path):
                    sock.unlink(missing_ok=True)
                    path.unlink()
                    removed.append(path)
            finally:
                os.close(descriptor)
    return removed


def remove(path: Path) -> bool:
    """Removes a file that no process holds any more, and the socket beside it. Returns whether it no longer exists."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if not _lock(descriptor, fcntl.LOCK_EX):
            return False
        path.with_suffix(DNS_SOCKETS).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Returns whether the open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
