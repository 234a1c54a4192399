"""Programs a recorded node in a network namespace of this process's own."""

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing

from nodeagent.cli.recording import Recording
from nodeagent.model.reports import PurgeReport
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.node_dataplane import NodeDataplane
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions

_CLONE_NEWNET = 0x40000000
_OURSELVES = (sys.executable, "-m", "nodeagent")
SHOWN = ("nodeagent", "show", "frontends")


class CannotRun(Exception):
    """There is no such program, or it may not be run."""


class _Silent:
    """Nobody counts what is forgotten of affinity."""

    def affinity_purged(self, report: PurgeReport) -> None:
        """Nothing."""


def replay_in_namespace(recording: Recording, command: Sequence[str]) -> int:
    """The exit code of `command`, run where the recording is in force; `nodeagent` is this one, on the path or not.

    Raises CannotRun, PermissionError, OSError and a DataplaneError.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False)  # noqa: S607 - without a shell
    asyncio.run(_program(recording))
    name, *arguments = command or SHOWN
    argv = [*(_OURSELVES if name == "nodeagent" else (name,)), *arguments]
    try:
        return subprocess.run(argv, check=False).returncode  # noqa: S603 - what the user typed
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise CannotRun(f"{name}: {error.strerror}") from error


async def _program(recording: Recording) -> None:
    plain = ProgramOptions(PodDetection.CIDR)
    options = {family: (recording.program or {}).get(family, plain) for family in recording.families}
    with closing(Ruleset()) as netlink:
        dataplane = NodeDataplane(netlink, Ownership.PLAIN, options, _Silent(), interface_name=None)
        for table in dataplane.tables:
            await table.sync({state.key: state for state in recording.states}, recording.node)
