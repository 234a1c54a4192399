"""Shell completion as docs/commands.md installs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.cli.main import COMMANDS, main

NODEAGENT = Path(sys.executable).with_name("nodeagent")
DOCUMENT = Path(__file__).parents[3] / "docs" / "commands.md"


def ask(variable: str, *, words: str = "") -> str:
    environment = os.environ | {"_NODEAGENT_COMPLETE": variable}
    if words:
        environment |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    return subprocess.run([NODEAGENT], env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_which_the_document_names(shell: str) -> None:
    assert "_NODEAGENT_COMPLETE" in ask(f"{shell}_source")
    assert f"_NODEAGENT_COMPLETE={shell}_source nodeagent > " in DOCUMENT.read_text()


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What bash loads."""
    script = tmp_path_factory.mktemp("completion") / "nodeagent"
    script.write_text(ask("bash_source"))
    return script


CASES: dict[str, set[str]] = {
    "nodeagent ": set(COMMANDS),
    "nodeagent c": {"check", "cleanup", "config", "connectivity"},
    "nodeagent show ": {"services", "frontends", "backends"},
    "nodeagent config ": {"show", "check"},
    "nodeagent run --cluster": {"--cluster-cidr"},
    "nodeagent cleanup --of k": {"kube-proxy"},
    "nodeagent run --no-such": set(),
    "nodeagent run --table-own": {"--table-ownership"},
    "nodeagent run --table-ownership ": {"auto", "owned", "plain"},
    "nodeagent run --log-level w": {"warning"},
    "nodeagent run --dns-autopath t": {"true"},
    "nodeagent explain -o j": {"json"},
    "nodeagent trace --from l": {"lo"},
    "nodeagent trace no": {"node/"},
    "nodeagent help expl": {"explain"},
    "nodeagent help lab fa": {"fault"},
}
BY_BASH = (
    "nodeagent ",
    "nodeagent run --cluster",
    "nodeagent run --no-such",
    "nodeagent explain -o j",
    "nodeagent trace no",
)
"""Nothing typed yet, an option, nothing to offer, a value, and what goes on behind a `/`. Each starts an interpreter."""


@pytest.mark.parametrize("words", CASES)
def test_offers_are_as_expected(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the program says it to bash's script: a kind and a word in each line."""
    monkeypatch.setenv("_NODEAGENT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        main([], prog_name="nodeagent")
    offered = [line.partition(",") for line in capsys.readouterr().out.splitlines() if line]
    assert (ended.value.code, {kind for kind, _, _ in offered} <= {"plain"}) == (0, True)
    assert {word for _, _, word in offered} == CASES[words]


@pytest.mark.parametrize("words", BY_BASH)
def test_bash_completes(bash_script: Path, words: str) -> None:
    """By bash itself, with the script that it would load."""
    typed = words.split(" ")
    program = f"""
        compopt() {{ :; }}
        source {bash_script}
        complete -p nodeagent | grep -q _nodeagent_completion || exit 1
        PATH={NODEAGENT.parent}:$PATH
        COMP_WORDS=({" ".join(repr(word) for word in typed)}) COMP_CWORD={len(typed) - 1}
        _nodeagent_completion nodeagent
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert set(done.stdout.split()) == CASES[words], done.stderr


@pytest.mark.parametrize(("shell", "lines"), [("zsh", ["plain", "json", "_"]), ("fish", ["plain,json"])])
def test_the_completion_of_each_shell(shell: str, lines: list[str]) -> None:
    """In the form that click's script of that shell reads."""
    environment = os.environ | {"_NODEAGENT_COMPLETE": f"{shell}_complete", "COMP_WORDS": "nodeagent explain -o j"}
    environment |= {"COMP_CWORD": "j" if shell == "fish" else "3"}
    done = subprocess.run([NODEAGENT], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == lines
