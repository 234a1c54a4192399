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


async def follow_sample(services: Sequence[str]) -> FollowedSample:
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
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            output, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"exit status {process.returncode}: {last}")
    try:
        return msgspec.json.decode(output, type=FollowedSample)
    except UNREADABLE as error:
        raise OSError(f"it printed no result: {error}") from error
