"""Files that are read whole, but not whatever their size. Every call blocks."""

import errno
import os
from pathlib import Path

SMALL_BYTES = 4 << 20
"""Of a file that somebody writes by hand: a configuration, a kubeconfig, a certificate."""


def read_whole(path: Path, limit_bytes: int = SMALL_BYTES) -> bytes:
    """The content. Raises OSError: EFBIG for more than `limit_bytes`, wherever they come from (a device has no end)."""
    with path.open("rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"it has more than {limit_bytes >> 20} MiB", os.fspath(path))
    return content
