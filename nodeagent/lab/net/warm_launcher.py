"""Commands of `nodeagent` as forks of a server that has imported them: most of a start's second is imports.

Such a process gets the same as `python -m nodeagent` in ``ip netns exec``: namespace, /sys, command line, environment,
streams, default signals, and it ends with its parent. Without a namespace it is in that of the thread that starts it,
like any child.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGKILL

from nodeagent.lab.net.fork_server import Fork, ForkServer, show_command_line, take_streams
from nodeagent.lab.net.namespace_process import Launcher, Running
from nodeagent.lab.net.network_namespaces import enter

NODEAGENT = (sys.executable, "-m", "nodeagent")
PROGRAM_NAME = "python -m nodeagent"
ENTRY = "nodeagent.__main__"
COMMANDS = ("run", "show", "apiserver")
"""Those that a lab starts."""
PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
MS_SLAVE_REC = 0x00080000 | 0x4000
MNT_DETACH = 2


def modules_of(*commands: str) -> tuple[str, ...]:
    """Returns the modules that a fork server must have imported for these commands."""
    return (__name__, ENTRY, "nodeagent.cli.main", *(f"nodeagent.cli.{command}" for command in commands))


class WarmLauncher(Launcher):
    """Forks commands that begin with NODEAGENT; other programs are started as usual."""

    def __init__(self, fork_server: ForkServer) -> None:
        self.fork_server = fork_server

    def entry(self) -> tuple[str, ...]:
        """Returns the function that a fork calls, and its arguments before the descriptors."""
        return (f"{__name__}:carry_out",)

    def start(self, namespace: str, argv: Sequence[str], environment: Mapping[str, str], output: int) -> Running:
        if tuple(argv[: len(NODEAGENT)]) != NODEAGENT:
            return super().start(namespace, argv, environment, output)
        with Path(os.devnull).open("rb") as nothing:
            streams = (nothing.fileno(), output, output)
            return self.fork(namespace, argv[len(NODEAGENT) :], environment, str(Path.cwd()), streams, PROGRAM_NAME)

    def run(
        self, namespace: str, argv: Sequence[str], *, stdin: str = "", timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        if tuple(argv[: len(NODEAGENT)]) != NODEAGENT:
            return super().run(namespace, argv, stdin=stdin, timeout=timeout)
        return self.command(namespace, argv[len(NODEAGENT) :], stdin=stdin, timeout=timeout, called=PROGRAM_NAME)

    def command(
        self,
        namespace: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        directory: str = "",
        stdin: str = "",
        timeout: float = 60.0,
        called: str = "nodeagent",
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command of `nodeagent` to its end. Returns what it printed. called: its name in usage errors. Raises
        subprocess.TimeoutExpired."""
        inherited = os.environ if environment is None else environment
        with contextlib.ExitStack() as stack:
            given, out, errors = (
                stack.enter_context(os.fdopen(os.memfd_create(name), "w+b")) for name in ("stdin", "stdout", "stderr")
            )
            given.write(stdin.encode())
            given.seek(0)
            streams = (given.fileno(), out.fileno(), errors.fileno())
            fork = self.fork(namespace, arguments, inherited, directory or str(Path.cwd()), streams, called)
            try:
                status = fork.wait(timeout)
            except subprocess.TimeoutExpired:
                fork.kill()
                fork.wait()
                raise
            printed = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, errors)]
        return subprocess.CompletedProcess([called, *arguments], status, *printed)

    def fork(
        self,
        namespace: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        streams: tuple[int, int, int],
        called: str,
    ) -> Fork:
        """Returns a running command of `nodeagent` with these three streams."""
        description = [namespace, directory, called, list(arguments), dict(environment)]
        with os.fdopen(os.memfd_create("command"), "w+") as order, Path("/proc/thread-self/ns/net").open("rb") as here:
            json.dump(description, order)
            order.flush()
            os.lseek(order.fileno(), 0, os.SEEK_SET)
            function, *given = self.entry()
            return self.fork_server.fork(function, given, (order.fileno(), here.fileno(), *streams))


def carry_out(order: int, creators_network: int, *streams: int) -> None:
    """Turns the fork into the described process; never returns."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(SIGKILL), 0, 0, 0)
        os.setsid()
        standard_input, output, errors = streams
        take_streams((standard_input, output, errors))
        for stream in set(streams):
            os.close(stream)
        with os.fdopen(order) as file:
            namespace, directory, called, arguments, environment = json.load(file)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        if namespace:
            enter(namespace)
            show_own_sys(namespace)
        else:
            join(creators_network)
        os.close(creators_network)
        sys.argv = ["nodeagent", *arguments]
        with show_command_line((*NODEAGENT, *arguments)):
            status = exit_status(called)
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
    finally:
        os._exit(status)


def exit_status(called: str) -> int:
    """Runs the command to its end, as an interpreter would. Returns the exit status."""
    try:
        importlib.import_module(ENTRY).main(prog_name=called)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at the end of an interpreter
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = status or 120  # as in Py_FinalizeEx
    return status


def join(network: int) -> None:
    """Moves into this network namespace. If the process is in it already, no privilege is needed."""
    if os.fstat(network).st_ino == Path("/proc/self/ns/net").stat().st_ino:
        return
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(network, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def show_own_sys(namespace: str) -> None:
    """Mounts a /sys that shows the devices of the namespace, in a new mount namespace, as ip-netns(8) does."""
    library = ctypes.CDLL(None, use_errno=True)

    def check(status: int, what: str) -> None:
        if status:
            raise OSError(ctypes.get_errno(), what)

    check(library.unshare(CLONE_NEWNS), "unshare")
    check(library.mount(b"", b"/", b"none", MS_SLAVE_REC, None), "mount --make-rslave /")
    library.umount2(b"/sys", MNT_DETACH)
    check(library.mount(namespace.encode(), b"/sys", b"sysfs", 0, None), "mount /sys")
