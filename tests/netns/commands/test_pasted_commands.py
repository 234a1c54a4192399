"""The documents' blocks of commands, pasted one after the other into one shell: they print what the documents say."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.documented_commands import ROOT, not_shown, run_by
from tests.netns.commands.following import wait_for

HERE = str(Path(__file__).relative_to(ROOT))
SECONDS = 120


def paste(commands: str, directory: Path) -> str:
    """What a shell prints that has these commands on its standard input. It has a network namespace of its own in any case."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = subprocess.Popen(
        ["unshare", "-n", "bash"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=ROOT,
        env={**os.environ, "PATH": path, "TMPDIR": str(directory)},
    )
    try:
        return shell.communicate(commands, timeout=SECONDS)[0]
    finally:
        try:
            wait_for(lambda: not runs(shell.pid), lambda: "something of it still runs")
        finally:
            if runs(shell.pid):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


def runs(group: int) -> bool:
    """Whether a process of this group exists."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("document", "shows"),
    [
        pytest.param("README.md", 5, id="README"),
        pytest.param("docs/tutorial.md", 12, id="tutorial"),
        pytest.param("docs/dataplane.md", 4, id="dataplane"),
        pytest.param("docs/commands.md", 4, id="commands"),
        pytest.param("docs/metrics.md", 0, id="metrics"),
    ],
)
def test_a_document_shows_what_its_commands_print(document: str, shows: int, tmp_path: Path) -> None:
    blocks = run_by(HERE, document)
    wanted = [line for block in blocks for line in block.shown]
    assert len(wanted) >= shows
    printed = paste("".join(block.commands for block in blocks), tmp_path)
    assert not_shown(wanted, printed) == "", printed
    assert "command not found" not in printed
    assert "Traceback" not in printed


def test_a_missing_line_of_output_fails_the_test() -> None:
    wanted = ["healthy: …", "…0:2…"]
    assert not_shown(wanted, "first\nhealthy: 1 of 1\nthen 0:2 so\n") == ""
    assert not_shown(wanted, "then 0:2 so\nhealthy: 1 of 1\n") == "…0:2…"
