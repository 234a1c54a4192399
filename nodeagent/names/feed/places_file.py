"""The file beside the unix socket that says where names are answered.

Agent and process hold a shared lock on it. The kernel takes that away when both are gone, so that nobody takes the file
of a killed one for that of a network namespace which was given the same number later.
"""

import fcntl
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nodeagent.model.runtime_files import DNS_PLACES, DNS_SOCKETS

LOCKED = "# locked by those who answer at\n"
"""The first line. A file without it was written by a version that locked nothing, and says nothing of its socket."""
LOCK_TRIES = 20
BETWEEN_SECONDS = 0.001
"""Somebody may be looking, or sweeping, at that very moment."""


def hold(path: Path, places: Iterable[object]) -> int | None:
    """Write the places, one a line, and return the open file that holds the lock; None where there cannot be such a file.
    It is never waited for: names do not depend on it. The process has the open file, and can only read."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        for _ in range(LOCK_TRIES):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if _lock(descriptor, fcntl.LOCK_SH) and _is_at(descriptor, path):
                text = "".join((LOCKED, *(f"{place}\n" for place in places))).encode()
                os.pwrite(descriptor, text, 0)
                os.ftruncate(descriptor, len(text))
                holding = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                if _lock(holding, fcntl.LOCK_SH) and _is_at(holding, path):
                    os.close(descriptor)
                    return holding
                os.close(holding)
            os.close(descriptor)
            time.sleep(BETWEEN_SECONDS)
    return None


def read(path: Path) -> list[str]:
    """The lines of a file that somebody holds; none where nobody does. Raises OSError."""
    with path.open() as file:
        if _lock(file.fileno(), fcntl.LOCK_EX):
            return []
        return [line for line in file.read().splitlines() if not line.startswith("#")]


def sweep(own: Path) -> list[Path]:
    """Remove what nobody holds any more beside our own file, and the sockets that go with it; says what."""
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
                if ours and _lock(descriptor, fcntl.LOCK_EX) and _is_at(descriptor, path):
                    sock.unlink(missing_ok=True)
                    path.unlink()
                    removed.append(path)
            finally:
                os.close(descriptor)
    return removed


def remove(path: Path) -> bool:
    """Remove a file that nobody holds any more, and the socket beside it; whether it is gone."""
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


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
