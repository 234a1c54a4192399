"""Disk space that is kept for deletions: a file that is deleted when nothing else fits any more."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

BYTES: Final = 4 * 1024 * 1024
_SPARE_BYTES: Final = 1024 * 1024
"""What must be free in addition before the reserve is taken again, since deletions use up part of the space."""


class DiskReserve:
    """The reserve of one store, shared by all servers on it. While it is missing, only writes that free space are accepted."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    @property
    def held(self) -> bool:
        """Whether the reserve exists."""
        try:
            return self._path.stat().st_size == BYTES
        except OSError:
            return False

    def release(self) -> None:
        """Deletes the reserve, if the disk has almost no other free space."""
        if self._free_bytes() < _SPARE_BYTES:
            with suppress(OSError):
                self._path.unlink()

    def hold(self) -> bool:
        """Takes the reserve if the disk has enough free space. Returns whether it exists now."""
        if self.held:
            return True
        if self._free_bytes() < BYTES + _SPARE_BYTES:
            return False
        taking = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            descriptor = os.open(taking, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, BYTES)
            finally:
                os.close(descriptor)
            taking.rename(self._path)
        except OSError:
            with suppress(OSError):
                taking.unlink()
            return False
        return True

    def _free_bytes(self) -> int:
        try:
            disk = os.statvfs(self._path.parent)
        except OSError:
            return 0
        return disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail)
