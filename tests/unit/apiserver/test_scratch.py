"""The directory of a server without --data-dir: nobody takes it while the server lives, and nobody keeps it afterwards."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.apiserver.api_server import ApiServer
from nodeagent.apiserver.scratch import scratch_directory
from nodeagent.apiserver.server_settings import ServerSettings
from nodeagent.proxy.source.mirror import mirror_endpoints
from tests.harness.served_api import serving

HOLDER = """
import sys
from nodeagent.apiserver.scratch import scratch_directory
with scratch_directory() as path:
    (path / "pki").mkdir()
    print(path, flush=True)
    sys.stdin.read()
"""


class Quiet:
    def ready(self, status: str) -> None:
        pass

    def stopping(self) -> None:
        pass


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder(temporary: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that has one."""
    started = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True)
    yield started
    started.kill()
    started.communicate()


def test_the_next_start_removes_the_directory_of_a_killed_server(
    temporary: Path, holder: "subprocess.Popen[str]"
) -> None:
    assert holder.stdout is not None
    theirs = Path(holder.stdout.readline().strip())
    with scratch_directory() as ours, scratch_directory() as another:
        assert set(temporary.iterdir()) == {theirs, ours, another}
    assert list(temporary.iterdir()) == [theirs]
    holder.kill()
    holder.wait()
    assert (theirs / "pki").is_dir()
    with scratch_directory() as ours:
        assert list(temporary.iterdir()) == [ours]
    assert not list(temporary.iterdir())


def test_only_what_a_server_made_is_removed(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "file").touch()
    (temporary / "nodeagent-keys-link").symlink_to(elsewhere)
    (temporary / "nodeagent-keys-open").mkdir(mode=0o755)
    (temporary / "nodeagent-keys-file").touch(mode=0o600)
    before = set(temporary.rglob("*"))
    with scratch_directory():
        pass
    assert set(temporary.rglob("*")) == before


def test_a_server_that_needs_no_keys_makes_none(temporary: Path) -> None:
    async def seen() -> list[str]:
        settings = ServerSettings(port=0, in_memory=True, insecure=True)
        async with serving(ApiServer(settings, mirror=mirror_endpoints, notifier=Quiet())):
            return os.listdir(temporary)

    assert asyncio.run(seen()) == []
