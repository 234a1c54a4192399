"""What a process lacks is said in one line, and nothing else is taken for that."""

import errno

import pytest

from nodeagent.cli.lacking import missing_resource


@pytest.mark.parametrize(
    ("error", "says", "code"),
    [
        (OSError(errno.EMFILE, "Too many open files", "/sys/class/net"), "LimitNOFILE", 1),
        (OSError(errno.ENFILE, "Too many open files in system"), "fs.file-max", 1),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "MemoryMax", 1),
        (MemoryError(), "MemoryMax", 1),
        (FileNotFoundError(errno.ENOENT, "No such file", "/proc/self/ns/net"), "mount proc at /proc", 3),
    ],
)
def test_a_lack_is_named(error: Exception, says: str, code: int) -> None:
    found = missing_resource(error)
    assert found is not None
    assert (says in found.message, found.exit_code) == (True, code)


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "No such file", "/etc/x"), OSError(), ValueError()])
def test_other_errors_are_left_alone(error: Exception) -> None:
    assert missing_resource(error) is None
