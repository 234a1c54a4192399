"""Exit codes of every command; documented in docs/commands.md."""

from typing import IO

import click

from nodeagent.model.text import printable

FAILED = 1
"""Something went wrong while running; `run --once`: some object is not in effect."""
UNUSABLE = 2
"""The command line, configuration, kubeconfig or manifest directory cannot be used."""
CANNOT_PROGRAM = 3
"""This process may not, or this kernel cannot, do what is needed."""
INTERRUPTED = 130
"""Ended by Ctrl-C. A daemon exits with 0 instead, because signals are the normal way to end it."""


class Failure(click.ClickException):
    """Ends the command with this exit code, and one line on standard error."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(printable(" ".join(message.split())))
        vars(self)["exit_code"] = exit_code

    def show(self, file: IO[str] | None = None) -> None:
        """Prints one line, no traceback."""
        click.echo(f"nodeagent: {self.message}", file=file, err=file is None)
