"""A temporary directory for the keys of a server without a data directory; removed at its end, or by the next server."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = "nodeagent-keys-"


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Yields an empty temporary directory, locked while the block lasts (flock(2)); a killed server leaves it behind unlocked."""
    remove_left_behind()
    held = None
    while held is None:
        # Before it is locked, another server that starts may remove it as one that was left behind.
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        held = _lock(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(held)


def remove_left_behind() -> None:
    """Removes the directories that killed servers of this user left behind."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        held = _lock(path)
        if held is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(held)


def _lock(path: Path) -> int | None:
    """Returns a descriptor that locks the directory; None if it is another user's, locked by a live server, or missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(found, path.stat(follow_symlinks=False)):
                return descriptor
    os.close(descriptor)
    return None
