"""A saved state on the disk. Every call blocks.

After a crash at any moment the file is the old one or the new one: the new content is on the disk before it gets its name.
"""

import os
from contextlib import suppress
from pathlib import Path

from nodeagent.runtime.bounded_file import read_whole

MODE = 0o600
LARGEST_FILE_BYTES = 256 << 20


def read_state(path: Path) -> bytes | None:
    """Returns the content, or None if there is no such file. Raises OSError, with EFBIG for one that is too large."""
    try:
        return read_whole(path, LARGEST_FILE_BYTES)
    except FileNotFoundError:
        return None


def write_state(path: Path, content: bytes) -> None:
    """Replaces the file by one with this content and mode 0600. Creates its directory, with mode 0700. Raises OSError; the file
    is unchanged then."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with suppress(FileNotFoundError):
        beside.unlink()
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE), "wb") as file:  # noqa: PTH123
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
