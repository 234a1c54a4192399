"""Handles a standard output that is closed or full: the command prints one line and exits with 1. If the reader has closed
the pipe (`| head -1`), no message is printed."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from nodeagent.cli.exit_codes import FAILED, Failure

_STDOUT = 1
_ERRNOS = {errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.EPIPE}


class ClosedOutput(io.TextIOBase):
    """Replaces a standard output that was closed before the start; every write raises OSError (EBADF)."""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:  # noqa: ARG002 - nobody will read it
        raise OSError(errno.EBADF, "is closed")


@contextmanager
def failing_output() -> Iterator[None]:
    """Raises Failure if the output could not be written, and Exit if the reader has closed the pipe."""
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno not in _ERRNOS:
            raise
        if not isinstance(sys.stdout, ClosedOutput):
            _discard_output()
        if error.errno == errno.EPIPE:
            raise click.exceptions.Exit(FAILED) from error
        raise Failure(f"standard output: {error.strerror}", FAILED) from error


def _discard_output() -> None:
    """Discards buffered output. Otherwise Python would fail to write it at exit and print a message of its own."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, _STDOUT)
    os.close(null)
