"""Errors for which the process lacks a resource: one line instead of a traceback."""

import errno

from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure

_SHORT = {
    errno.EMFILE: "too many open files: look at `ulimit -n` and LimitNOFILE= of the unit",
    errno.ENFILE: "too many open files on this machine: look at sysctl fs.file-max",
    errno.ENOMEM: "out of memory: look at `ulimit -v`, MemoryMax= of the unit and memory.max of the cgroup",
}


def missing_resource(error: BaseException) -> Failure | None:
    """Returns the failure to print for a resource that ran out, or None for any other error."""
    if isinstance(error, MemoryError):
        return Failure(_SHORT[errno.ENOMEM], FAILED)
    if not isinstance(error, OSError):
        return None
    if isinstance(error, FileNotFoundError) and str(error.filename).startswith("/proc/self/"):
        return Failure(f"{error.filename} does not exist: mount proc at /proc", CANNOT_PROGRAM)
    reason = _SHORT.get(error.errno or 0)
    return None if reason is None else Failure(reason, FAILED)
