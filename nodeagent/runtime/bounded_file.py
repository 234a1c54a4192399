"""Reads whole files up to a bounded size. Every call blocks."""

import errno
import os
from pathlib import Path

SMALL_BYTES = 4 << 20
"""The limit of a file that a person writes: a configuration, a kubeconfig, a certificate."""


def read_whole(path: Path, limit_bytes: int = SMALL_BYTES) -> bytes:
    """Returns the content. Raises OSError: EFBIG for more than `limit_bytes`, also from a device, which has no end."""
    with path.open("rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"it has more than {limit_bytes >> 20} MiB", os.fspath(path))
    return content
