"""Prints rows and documents in the format of `-o`: a table that fits the terminal, JSON, YAML, or only names."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import click
import msgspec

from nodeagent.cli.columns import Column, lay_out
from nodeagent.model.text import printable

Result = TypeVar("Result")


FORMS = ("table", "wide", "json", "yaml", "name")
"""The values of `-o`, the same for every command that prints results; the first is the default."""


def output_option(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds ``-o``."""
    return click.option("-o", "--output", type=click.Choice(FORMS), default=FORMS[0], show_default=True)(command)


def print_document(value: object, output: str) -> None:
    """Prints a value as JSON or YAML, with its fields in their order."""
    plain = msgspec.to_builtins(value, str_keys=True)
    if output == "yaml":
        import yaml  # noqa: PLC0415 - takes longer to load than all else here

        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=False), nl=False)
    else:
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))


def print_rows(
    columns: Sequence[Column], rows: Sequence[dict[str, object]], output: str, *, wide: frozenset[str], name: str
) -> None:
    """Prints rows. output: `table` hides the columns in `wide`; `name` prints only the column `name`; else a document."""
    if output in ("json", "yaml"):
        print_document(list(rows), output)
    elif output == "name":
        for row in rows:
            click.echo(printable(str(row[name])))
    else:
        rows = [
            {key: printable(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows
        ]
        print_table([one for one in columns if output == "wide" or one.key not in wide], rows)


def is_terminal() -> bool:
    """Returns whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def print_table(columns: Sequence[Column], rows: Sequence[dict[str, object]]) -> None:
    """Prints aligned columns that fit the terminal; into a pipe or a file, full lines."""
    layout = lay_out(columns, rows, shutil.get_terminal_size().columns if is_terminal() else None)
    heading, *lines = layout.lines
    click.echo("\n".join([click.style(heading, bold=True), *lines]))
    if layout.dropped:
        names, word = ", ".join(layout.dropped), "column" if len(layout.dropped) == 1 else "columns"
        click.echo(f"nodeagent: note: no room for the {word} {names}; -o json has everything", err=True)
