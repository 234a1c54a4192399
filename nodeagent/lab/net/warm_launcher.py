"""The commands of `nodeagent` as forks of a server that has imported them: most of the second that one takes is imports.

What such a process is given is what `python -m nodeagent` in ``ip netns exec`` would have: namespace, /sys, command line,
environment, streams, default signals, and a parent whose end is its own. Where no namespace is named it is in that of the
thread that starts it, as any child is.
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

from nodeagent.lab.net.fork_server import Fork, ForkServer
from nodeagent.lab.net.namespace_process import Launcher, Running
from nodeagent.lab.net.network_namespaces import enter
from nodeagent.lab.net.own_fork import show_command_line, take_streams

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
    """What a fork server needs to have imported for these commands."""
    return (__name__, ENTRY, "nodeagent.cli.main", *(f"nodeagent.cli.{command}" for command in commands))


class WarmLauncher(Launcher):
    """Forks what begins with NODEAGENT; other programs are started as usual."""

    def __init__(self, fork_server: ForkServer) -> None:
        self.fork_server = fork_server

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
        """A command of `nodeagent` that has ended, and what it printed. called: what it calls itself in usage errors.

        Raises subprocess.TimeoutExpired.
        """
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
        """A command of `nodeagent` that goes on, with these three streams."""
        told = [namespace, directory, called, list(arguments), dict(environment)]
        with os.fdopen(os.memfd_create("command"), "w+") as order, Path("/proc/thread-self/ns/net").open("rb") as here:
            json.dump(told, order)
            order.flush()
            os.lseek(order.fileno(), 0, os.SEEK_SET)
            return self.fork_server.fork(f"{__name__}:carry_out", (), (order.fileno(), here.fileno(), *streams))


def carry_out(order: int, creators_network: int, *streams: int) -> None:
    """In the fork: become that process; it ends here."""
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
    except BaseException:  # noqa: BLE001 - it is a process that ends
        traceback.print_exc()
    finally:
        os._exit(status)


def exit_status(called: str) -> int:
    """Run the command to its end, as an interpreter would."""
    try:
        importlib.import_module(ENTRY).main(prog_name=called)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - it is a process that ends
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at the end of an interpreter
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = status or 120  # as Py_FinalizeEx has it
    return status


def join(network: int) -> None:
    """Move into this network namespace. Where we are already, no right is needed."""
    if os.fstat(network).st_ino == Path("/proc/self/ns/net").stat().st_ino:
        return
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(network, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def show_own_sys(namespace: str) -> None:
    """Mount a /sys that shows the devices of the namespace, in a mount namespace of its own, as ip-netns(8) does."""
    library = ctypes.CDLL(None, use_errno=True)

    def check(status: int, what: str) -> None:
        if status:
            raise OSError(ctypes.get_errno(), what)

    check(library.unshare(CLONE_NEWNS), "unshare")
    check(library.mount(b"", b"/", b"none", MS_SLAVE_REC, None), "mount --make-rslave /")
    library.umount2(b"/sys", MNT_DETACH)
    check(library.mount(namespace.encode(), b"/sys", b"sysfs", 0, None), "mount /sys")
