"""`nodeagent replay`: programs a recorded node in a new network namespace."""

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from nodeagent.cli.bundle_archive import open_bundle
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, UNUSABLE, Failure
from nodeagent.cli.recording import RECORDING, NotReplayable, Recording, decode_recording, read_members
from nodeagent.cli.replayed_objects import CONTEXT, OBJECTS, environment_of, write_manifests
from nodeagent.cli.replayed_routes import SURROUNDINGS, make_surroundings
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import DataplaneError, NotPermitted, Unsupported
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
        dataplane = NodeDataplane(netlink, Ownership.PLAIN, options, _NoObserver(), interface_name=None, early={})
        for table in dataplane.tables:
            await table.sync({state.key: state for state in recording.states}, recording.node)


@click.command(
    "replay",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "nodeagent replay report.tar.gz",
        "nodeagent replay report.tar.gz nft list table ip nodeagent",
        "nodeagent replay report.tar.gz nodeagent explain web",
        "nodeagent replay report.tar.gz nodeagent trace 10.244.1.5 10.96.0.10:80",
        "nodeagent replay --node node-1 report.tar nodeagent explain     of an archive of all nodes",
    ),
)
@click.argument("bundle", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--node",
    metavar="NAME",
    help="The node, for an archive of all nodes. Before BUNDLE; after it, it is an option of COMMAND.",
)
def replay_command(bundle: Path, command: tuple[str, ...], node: str | None) -> None:
    """Program the tables of BUNDLE in a new network namespace, and run COMMAND in it (default: `nodeagent show frontends`).

    The namespace is deleted when COMMAND ends. The rules of this machine do not change.

    Exit codes: that of COMMAND; 1 failed, 2 BUNDLE is not a bundle, or COMMAND is not a program, 3 no permission.
    """
    try:
        with open_bundle(bundle, node) as file:
            members = read_members(file, {RECORDING, OBJECTS, CONTEXT, *SURROUNDINGS})
        decode_recording(members)
    except NotReplayable as error:
        raise Failure(f"{bundle}: {error}", UNUSABLE) from error
    try:
        code = replay_in_namespace(members, command)
    except NotReplayable as error:
        raise Failure(f"{bundle}: {error}", UNUSABLE) from error
    except PermissionError as error:
        raise Failure(f"a network namespace needs root: {error.strerror}", CANNOT_PROGRAM) from error
    except CannotRun as error:
        raise Failure(f"COMMAND cannot be run: {error}", UNUSABLE) from error
    except (NotPermitted, Unsupported) as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except (DataplaneError, OSError) as error:
        raise Failure(str(error), FAILED) from error
    click.get_current_context().exit(code)
