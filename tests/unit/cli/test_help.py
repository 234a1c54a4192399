"""The help of every command says how it is used, and what it says can be typed."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from runpy import run_path

import click
import pytest
from click.testing import CliRunner

from nodeagent import __version__
from nodeagent.cli.main import main
from nodeagent.cli.rows import FORMS

_WRITER = Path(__file__).parents[3] / "systemd" / "packaging" / "man_pages.py"
_MAN_PAGES = run_path(str(_WRITER))
commands: Callable[[click.Command, tuple[str, ...]], Iterator[tuple[tuple[str, ...], click.Command]]] = _MAN_PAGES[
    "commands"
]
pages: Callable[[], Iterator[tuple[str, str]]] = _MAN_PAGES["pages"]
TELLING = {
    "show",
    "trace",
    "explain",
    "diff",
    "plan",
    "problems",
    "journal",
    "top",
    "check",
    "dns",
    "connectivity",
    "version",
}
"""Commands that tell something of a node or a cluster."""
FILES = {"config show": ("yaml", "json")}
"""Commands that print a file, in the syntaxes that it may have."""
EVERY = {" ".join(words[1:]): command for words, command in commands(main, ("nodeagent",))}


def example_lines(command: click.Command) -> list[str]:
    """What an example types, without the remark behind it."""
    lines = (command.epilog or "").partition("Examples:\n")[2].splitlines()
    typed = [re.split(r"\s{2,}", line.strip())[0] for line in lines if line.startswith("  ")]
    return [line for line in typed if line.startswith("nodeagent")]


def test_all_commands_are_looked_at() -> None:
    assert {"run", "explain", "lab fault", "apiserver kubeconfig", "config check"} <= EVERY.keys()


@pytest.mark.parametrize("words", EVERY)
def test_there_are_examples_of_the_command_itself(words: str) -> None:
    lines = example_lines(EVERY[words])
    assert lines, f"nodeagent {words} --help has no examples"
    assert all(set(words.split()) <= set(line.split()) for line in lines) or not words


@pytest.mark.parametrize("words", EVERY)
def test_examples_are_understood(words: str) -> None:
    for line in example_lines(EVERY[words]):
        assert reached(shlex.split(line)[1:]).startswith(words), line


def test_an_example_that_nobody_could_type_is_seen() -> None:
    for line in ("run --no-such-option", "lab fly", "show frontends more"):
        with pytest.raises(click.UsageError):
            reached(line.split())


def reached(arguments: list[str]) -> str:
    """The words of the command that takes these; options are read as it reads them. Raises click.UsageError."""
    command: click.Command = main
    words: list[str] = []
    while True:
        context = click.Context(command, ignore_unknown_options=command.context_settings.get("ignore_unknown_options"))
        context.allow_interspersed_args = command.allow_interspersed_args
        _, rest, _ = command.make_parser(context).parse_args(list(arguments))
        if isinstance(command, click.Group) and rest:
            _, child, arguments = command.resolve_command(context, rest)
            assert child is not None
            words.append(rest[0])
            command = child
            continue
        if rest and not isinstance(command, click.Group):
            raise click.UsageError(f"too many words: {rest}")
        return " ".join(words)


def test_every_command_with_output_has_all_forms() -> None:
    found = {words: forms_of(command) for words, command in EVERY.items() if forms_of(command)}
    assert found == {**dict.fromkeys(TELLING, FORMS), **FILES}


def test_there_are_five_forms() -> None:
    assert FORMS == ("table", "wide", "json", "yaml", "name")


def forms_of(command: click.Command) -> tuple[str, ...]:
    return next(
        (
            tuple(one.type.choices)
            for one in command.params
            if "--output" in one.opts and isinstance(one.type, click.Choice)
        ),
        (),
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("explian", "did you mean explain?"),
        ("lab statsu", "status"),
        ("run --manifest x", "--manifests"),
        ("explain --watc", "--watch"),
    ],
)
def test_a_typo_gets_a_suggestion(typed: str, meant: str) -> None:
    done = CliRunner().invoke(main, typed.split())
    assert done.exit_code == 2
    assert meant in done.output


def test_manual_pages_are_set_without_a_warning(tmp_path: Path) -> None:
    """By groff, as `man` does; all pages in one run, which a broken one spoils."""
    texts = dict(pages())
    assert {"nodeagent.8", "nodeagent-explain.8", "nodeagent-lab-fault.8"} <= texts.keys()
    assert complaints(tmp_path, "".join(texts.values())) == ""
    assert complaints(tmp_path, texts["nodeagent.8"] + ".no-such-macro\n\\[no-such-character]\n") != ""


def complaints(directory: Path, text: str) -> str:
    file = directory / "page.8"
    file.write_text(text)
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-Tutf8", file], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stderr


def test_man_shows_what_the_help_says(tmp_path: Path) -> None:
    file = tmp_path / "nodeagent-explain.8"
    file.write_text(dict(pages())[file.name])
    done = subprocess.run(
        ["man", "--warnings", "--local-file", str(file)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "100", "MANPAGER": "cat"},
    )
    assert done.stderr == ""
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"):
        assert heading in done.stdout
    assert all(line in done.stdout for line in example_lines(EVERY["explain"]))


@pytest.mark.parametrize("words", ["", "explain", "lab fault", "config show"])
def test_help_is_the_help_of_the_command(words: str) -> None:
    asked = CliRunner().invoke(main, ["help", *words.split()], prog_name="nodeagent")
    option = CliRunner().invoke(main, [*words.split(), "--help"], prog_name="nodeagent")
    assert (asked.exit_code, asked.output) == (0, option.output)


@pytest.mark.parametrize("words", ["explian", "lab statsu", "explain web"])
def test_help_of_an_unknown_command_exits_with_2(words: str) -> None:
    done = CliRunner().invoke(main, ["help", *words.split()])
    assert (done.exit_code, "No such command" in done.output) == (2, True)


def test_the_version_is_that_of_the_command_and_of_the_agent() -> None:
    done = CliRunner().invoke(main, ["version", "--socket", "/nonexistent", "-o", "json"])
    command, agent = json.loads(done.output)
    assert (done.exit_code, command["version"], agent["version"]) == (0, __version__, "")
    assert agent["where"].startswith("no agent answers at /nonexistent")
    assert CliRunner().invoke(main, ["version", "-o", "name"]).output == f"{__version__}\n"
