"""Starts the process that follows connections through the rules of all programs: it loads libraries that the agent must not have."""

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from nodeagent.names.feed.spawn import environment
from nodeagent.proxy.dataplane.followed_sample import FollowedSample
from nodeagent.wire.unreadable import UNREADABLE

MODULE = "nodeagent.cli.follow_sample"
LONGEST_SECONDS = 60.0


class ConnectionFollower:
    """processes: the numbers of those that it has started and that have not ended."""

    def __init__(self) -> None:
        self.processes: set[int] = set()

    async def follow(self, services: Sequence[str]) -> FollowedSample:
        """Returns what came of connections to these Services. Raises OSError if the process fails or takes too long."""
        isolated = ("-s", "-S") if sys.flags.isolated else ()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            *isolated,
            "-m",
            MODULE,
            *services,
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.processes.add(process.pid)
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                output, complaint = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            self.processes.discard(process.pid)
        return _result(process.returncode, output, complaint)


def _result(status: int | None, output: bytes, complaint: bytes) -> FollowedSample:
    if status:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"exit status {status}: {last}")
    try:
        return msgspec.json.decode(output, type=FollowedSample)
    except UNREADABLE as error:
        raise OSError(f"it printed no result: {error}") from error
