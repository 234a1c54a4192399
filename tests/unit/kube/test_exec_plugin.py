"""The time limit of an exec plugin and what is left of it afterwards."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.kube.errors import CredentialsError
from nodeagent.kube.exec_plugin import ExecCommand, ExecPlugin


def sleeper(directory: Path, *, run_limit_s: float) -> ExecPlugin:
    """A plugin whose child holds the pipe open; both write their process id."""
    script = "echo $$ >> pids; sh -c 'echo $$ >> pids; sleep 60'; true"
    command = ExecCommand("client.authentication.k8s.io/v1", "sh", ("-c", script), {}, directory)
    return ExecPlugin(command, now=lambda: datetime.now(UTC), run_limit_s=run_limit_s)


async def until_gone(directory: Path) -> None:
    """Both processes are gone, or wait for somebody to collect them."""
    for pid in (directory / "pids").read_text().split():
        async with asyncio.timeout(5):
            while is_running(pid):  # noqa: ASYNC110  # not our child, so nobody tells us of its end
                await asyncio.sleep(0.01)


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until_running(directory: Path) -> None:
    async with asyncio.timeout(5):
        while started(directory) < 2:  # noqa: ASYNC110  # the processes speak through a file
            await asyncio.sleep(0.01)


def started(directory: Path) -> int:
    pids = directory / "pids"
    return len(pids.read_text().split()) if pids.exists() else 0


def test_a_plugin_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(CredentialsError, match=r"gave no credential within 0\.3 s"):
            await sleeper(tmp_path, run_limit_s=0.3).current()
        await until_gone(tmp_path)

    asyncio.run(main())


def test_cancellation_leaves_no_process_behind(tmp_path: Path) -> None:
    async def main() -> None:
        task = asyncio.create_task(sleeper(tmp_path, run_limit_s=60).current())
        await until_running(tmp_path)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_gone(tmp_path)

    asyncio.run(main())
