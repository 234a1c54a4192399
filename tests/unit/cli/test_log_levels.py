"""`--log-level` is one word for both daemons, in either case."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from nodeagent.cli.apiserver import apiserver_command
from nodeagent.cli.config import config_command

LEVELS = pytest.mark.parametrize("level", ["debug", "DEBUG", "Warning"])


@LEVELS
def test_run_takes_it(tmp_path: Path, level: str) -> None:
    arguments = ["show", "--node-name=n", f"--manifests={tmp_path}", f"--log-level={level}"]
    shown = CliRunner().invoke(config_command, arguments)
    assert (shown.exit_code, f"level: {level.lower()} " in shown.stdout) == (0, True)


@LEVELS
def test_the_api_server_takes_it(level: str) -> None:
    """It gets as far as the next mistake."""
    refused = CliRunner().invoke(apiserver_command, ["--listen=nowhere", f"--log-level={level}"])
    assert (refused.exit_code, "--listen 'nowhere' is not an address" in refused.stderr) == (2, True)
    assert "--log-level" in CliRunner().invoke(apiserver_command, ["--log-level=loud"]).stderr
