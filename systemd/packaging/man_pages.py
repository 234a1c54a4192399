"""Writes a manual page for each command, from what the command line itself knows (man(7) macros).

python systemd/packaging/man_pages.py DIRECTORY
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from nodeagent import __version__
from nodeagent.cli.main import main

SECTION = 8
FILES = (
    ("/etc/nodeagent/nodeagent.yaml", "Configuration of the service."),
    ("/etc/nodeagent/services", "Manifests that the service reads until an API server is configured."),
    ("/etc/nodeagent/kubeconfig", "Where a kubeconfig is usually put; readable by the group nodeagent."),
)
EXIT_CODES = (
    ("0", "done; for run, ended by SIGTERM or SIGINT"),
    ("1", "something failed while running"),
    ("2", "the command line, configuration, kubeconfig or manifest directory cannot be used"),
    ("3", "this process may not, or this kernel cannot, do what is needed"),
)


def pages() -> Iterator[tuple[str, str]]:
    """(file name, text) of every page."""
    for words, command in commands(main, ("nodeagent",)):
        yield f"{'-'.join(words)}.{SECTION}", "\n".join(page(words, command)) + "\n"


def commands(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command by its words."""
    yield words, command
    for name, child in children(command):
        yield from commands(child, (*words, name))


def children(command: click.Command) -> list[tuple[str, click.Command]]:
    """The commands of a group."""
    if not isinstance(command, click.Group):
        return []
    context = click.Context(command)
    found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [(name, child) for name, child in found if child is not None and not child.hidden]


def page(words: tuple[str, ...], command: click.Command) -> Iterator[str]:
    """The lines of one page."""
    context = click.Context(command, info_name=" ".join(words))
    name = "-".join(words)
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    yield f'.TH {escape(name.upper())} {SECTION} "" "nodeagent {escape(__version__)}"'
    yield ".SH NAME"
    yield f"{escape(name)} \\- {escape(command.get_short_help_str(limit=200))}"
    yield ".SH SYNOPSIS"
    yield f".B {escape(' '.join(words))}"
    yield escape(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    for paragraph in paragraphs:
        yield ".PP"
        yield escape(" ".join(paragraph.split()))
    options = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    yield from definitions("OPTIONS", options)
    yield from definitions(
        "COMMANDS", [(child_name, child.get_short_help_str(limit=200)) for child_name, child in children(command)]
    )
    yield from definitions("EXIT STATUS", EXIT_CODES)
    yield from shown_as_typed("EXAMPLES", command.epilog or "")
    yield from definitions("FILES", FILES)
    related = {"nodeagent", *("-".join((*words, child)) for child, _ in children(command))} - {name}
    if related:
        yield ".SH SEE ALSO"
        yield ", ".join(f"\\fB{escape(other)}\\fR({SECTION})" for other in sorted(related))


def definitions(title: str, entries: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Iterator[str]:
    """A section of terms and what they mean; no section without entries."""
    if entries:
        yield f".SH {title}"
    for term, meaning in entries:
        yield ".TP"
        yield f"\\fB{escape(term)}\\fR"
        yield escape(" ".join(meaning.split()))


def shown_as_typed(title: str, epilog: str) -> Iterator[str]:
    """The examples below a command's help, line by line; no section without them."""
    lines = [line.strip() for line in epilog.split("\n") if line.startswith("  ")]
    if lines:
        yield f".SH {title}"
        yield ".EX"
        yield from map(escape, lines)
        yield ".EE"


def escape(text: str) -> str:
    """Text that means itself, also at the beginning of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in pages():
        (directory / file).write_text(text)
