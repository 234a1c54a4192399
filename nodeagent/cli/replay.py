"""Programs a recorded node in a new network namespace."""

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from nodeagent.cli.recording import Recording, decode_recording
from nodeagent.cli.replayed_objects import environment_of, write_manifests
from nodeagent.cli.replayed_routes import make_surroundings
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.node_dataplane import NodeDataplane
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.observe.dataplane_listeners import DataplaneListener

_CLONE_NEWNET = 0x40000000
_OURSELVES = (sys.executable, "-m", "nodeagent")
SHOWN = ("nodeagent", "show", "frontends")


class CannotRun(Exception):
    """The program does not exist or may not be executed."""


class _NoObserver(DataplaneListener):
    """Ignores reports of the dataplane."""


def replay_in_namespace(members: Mapping[str, bytes], command: Sequence[str]) -> int:
    """Runs `command` in a namespace with the recorded tables, and returns its exit code. The word `nodeagent` runs this
    version, with the objects of the bundle. `nodeagent explain` tries no endpoint, because none is reachable from there.

    Raises NotReplayable, CannotRun, PermissionError, OSError and a DataplaneError.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    make_surroundings(members)
    recording = decode_recording(members)
    asyncio.run(_program(recording))
    name, *arguments = command or SHOWN
    if name == "nodeagent" and arguments[:1] == ["explain"] and not {"--probe", "--no-probe"} & set(arguments):
        arguments += ("--no-probe", "--follow")
    argv = [*(_OURSELVES if name == "nodeagent" else (name,)), *arguments]
    try:
        with TemporaryDirectory(prefix="nodeagent-replay-") as place:
            objects = Path(place)
            environment = environment_of(objects, write_manifests(members, objects), recording)
            return subprocess.run(argv, check=False, env=os.environ | environment).returncode  # noqa: S603 - what the user typed
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise CannotRun(f"{name}: {error.strerror}") from error


async def _program(recording: Recording) -> None:
    plain = ProgramOptions(PodDetection.CIDR)
    options = {family: (recording.program or {}).get(family, plain) for family in recording.families}
    with closing(Ruleset()) as netlink:
        dataplane = NodeDataplane(netlink, Ownership.PLAIN, options, _NoObserver(), interface_name=None)
        for table in dataplane.tables:
            await table.sync({state.key: state for state in recording.states}, recording.node)
