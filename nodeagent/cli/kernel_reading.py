"""Turns errors of a read from the kernel into failures of a command."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.proxy.dataplane.errors import DataplaneError, NotPermitted, Unsupported


@contextmanager
def kernel_failures() -> Iterator[None]:
    """Turns a DataplaneError and OSError into a Failure with its exit code (context manager)."""
    try:
        yield
    except (NotPermitted, Unsupported) as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except (DataplaneError, OSError) as error:
        raise Failure(str(error), FAILED) from error
