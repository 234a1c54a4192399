"""Common to all `nodeagent lab` commands: the check for root, signals, the lab's directory, errors in one line."""

import functools
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, INTERRUPTED, UNUSABLE, Failure
from nodeagent.lab.caller import RequestRefused
from nodeagent.lab.directory import LabDirectory, base_directory
from nodeagent.lab.lab_plan import PROGRAMS
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.runtime.interrupts import prompt_signal_handling

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command. SIGINT too: a shell that starts it in the background may have set SIGINT to ignored."""


@contextmanager
def failures() -> Iterator[None]:
    """Turns errors into a Failure: one line and an exit code (context manager)."""
    try:
        yield
    except RequestRefused as error:
        raise Failure(str(error), UNUSABLE if error.unusable else FAILED) from error
    except ValueError as error:
        raise Failure(str(error), UNUSABLE) from error
    except LabError as error:
        raise Failure(str(error), FAILED) from error
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(INTERRUPTED)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise Failure(f"{place}{error.strerror or error}", FAILED) from error


def pass_lab(command: Callable[..., None]) -> Callable[..., None]:
    """Passes the LabDirectory as first argument of the command (decorator). `--help` does not need root."""

    @click.pass_obj
    def with_lab(name: str, /, **options: object) -> None:
        require_root()
        for number in ENDING:
            signal.signal(number, interrupt)
        with failures(), prompt_signal_handling():
            command(LabDirectory(base_directory(os.environ), name), **options)

    return functools.update_wrapper(with_lab, command)


def require_root() -> None:
    """Raises Failure without root or a needed program."""
    if os.geteuid():
        raise Failure("a lab is made of network namespaces: run it as root", CANNOT_PROGRAM)
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        raise Failure(f"missing programs: {', '.join(missing)}", CANNOT_PROGRAM)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Treats a signal like Ctrl-C."""
    raise KeyboardInterrupt
