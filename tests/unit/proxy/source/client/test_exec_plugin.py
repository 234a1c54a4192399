"""The time limit of an exec plugin and what is left of it afterwards."""

import asyncio
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.proxy.source.client.api_errors import CredentialsError
from nodeagent.proxy.source.client.exec_plugin import ExecCommand, ExecPlugin


def sleeper(directory: Path, *, run_limit_seconds: float) -> ExecPlugin:
    """A plugin whose child holds the pipe open; both write their process id."""
    script = "echo $$ >> pids; sh -c 'echo $$ >> pids; sleep 60'; true"
    command = ExecCommand("client.authentication.k8s.io/v1", "sh", ("-c", script), {}, directory)
    return ExecPlugin(command, now=lambda: datetime.now(UTC), run_limit_seconds=run_limit_seconds)


async def until_gone(directory: Path) -> None:
    """Both processes are gone, or wait for somebody to collect them."""
    for pid in (directory / "pids").read_text().split():
        async with asyncio.timeout(60):
            while is_running(pid):  # noqa: ASYNC110  # not our child, so nobody tells us of its end
                await asyncio.sleep(0.01)


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until_running(directory: Path) -> None:
    async with asyncio.timeout(60):
        while started(directory) < 2:  # noqa: ASYNC110  # the processes speak through a file
            await asyncio.sleep(0.01)


def started(directory: Path) -> int:
    pids = directory / "pids"
    return len(pids.read_text().split()) if pids.exists() else 0


def test_a_plugin_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(CredentialsError, match=r"gave no credential within 0\.3 s"):
            await sleeper(tmp_path, run_limit_seconds=0.3).current()
        await until_gone(tmp_path)

    asyncio.run(main())


def test_cancellation_leaves_no_process_behind(tmp_path: Path) -> None:
    async def main() -> None:
        task = asyncio.create_task(sleeper(tmp_path, run_limit_seconds=60).current())
        await until_running(tmp_path)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_gone(tmp_path)

    asyncio.run(main())


CREDENTIAL = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'


def plugin(directory: Path, script: str, run_limit_seconds: float = 30.0) -> ExecPlugin:
    command = ExecCommand("client.authentication.k8s.io/v1", "sh", ("-c", script), {}, directory)
    return ExecPlugin(command, now=lambda: datetime.now(UTC), run_limit_seconds=run_limit_seconds)


def test_a_grandchild_that_keeps_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    """A plugin may leave a cache daemon behind, which has inherited its output."""

    async def main() -> None:
        script = f"echo $$ > pids; (echo x >> started; exec sleep 200) & echo $! >> pids; echo '{CREDENTIAL}'"
        async with asyncio.timeout(60):
            assert (await plugin(tmp_path, script).current()).authorization == "Bearer t"
        os.kill(int((tmp_path / "pids").read_text().split()[1]), signal.SIGKILL)

    asyncio.run(main())


def test_a_process_group_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin ends in the moment in which its time is up."""

    def vanished(group: int, number: int) -> None:
        os.kill(group, number)
        raise ProcessLookupError

    monkeypatch.setattr(os, "killpg", vanished)

    async def main() -> None:
        with pytest.raises(CredentialsError, match=r"gave no credential within 0\.2 s"):
            await plugin(tmp_path, "exec sleep 20", 0.2).current()

    asyncio.run(main())


def test_endless_output_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(CredentialsError, match="its output is longer than 1048576 bytes"):
            await plugin(tmp_path, "head -c 3000000 /dev/zero").current()

    asyncio.run(main())
