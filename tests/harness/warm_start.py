"""The commands of `nodeagent` as forks of a server that has imported them: most of the second that one takes is imports.

For tests in which the start itself is not the point. What such a process is given is what `python -m nodeagent` in
``ip netns exec`` would have: namespace, /sys, arguments, environment, streams, default signals, and a parent whose end
is its own.
"""

import atexit
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from signal import SIGKILL

from nodeagent.cli.main import main
from nodeagent.lab.net.fork_server import Fork, ForkServer
from nodeagent.lab.net.member import ACTOR
from nodeagent.lab.net.namespaces import enter
from nodeagent.lab.net.process import Launcher, Running

AGENT = (sys.executable, "-m", "nodeagent")
COMMANDS = ("run", "show", "trace", "check", "cleanup", "config", "apiserver")
MODULES = (ACTOR, __name__, "nodeagent.cli.main", *(f"nodeagent.cli.{command}" for command in COMMANDS))
"""What a fork server needs to have imported for worlds and for these commands."""

PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x00020000
MS_SLAVE_REC = 0x00080000 | 0x4000
MNT_DETACH = 2


class WarmLauncher(Launcher):
    """Forks what begins with AGENT; other programs are started as usual."""

    def __init__(self, fork_server: ForkServer) -> None:
        self.fork_server = fork_server

    def start(self, namespace: str, argv: Sequence[str], environment: Mapping[str, str], output: int) -> Running:
        if tuple(argv[: len(AGENT)]) != AGENT:
            return super().start(namespace, argv, environment, output)
        with open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), output, output)
            return self._fork(namespace, argv[len(AGENT) :], environment, os.getcwd(), streams, "python -m nodeagent")

    def run(
        self, namespace: str, argv: Sequence[str], *, stdin: str = "", timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        if tuple(argv[: len(AGENT)]) != AGENT:
            return super().run(namespace, argv, stdin=stdin, timeout=timeout)
        return self.command(namespace, argv[len(AGENT) :], stdin=stdin, timeout=timeout, called="python -m nodeagent")

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
        """A command of `nodeagent` that has ended, and what it printed. Raises subprocess.TimeoutExpired."""
        inherited = os.environ if environment is None else environment
        with contextlib.ExitStack() as stack:
            given, out, errors = (
                stack.enter_context(os.fdopen(os.memfd_create(name), "w+b")) for name in ("stdin", "stdout", "stderr")
            )
            given.write(stdin.encode())
            given.seek(0)
            streams = (given.fileno(), out.fileno(), errors.fileno())
            fork = self._fork(namespace, arguments, inherited, directory or os.getcwd(), streams, called)
            try:
                status = fork.wait(timeout)
            except subprocess.TimeoutExpired:
                fork.kill()
                fork.wait()
                raise
            printed = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, errors)]
        return subprocess.CompletedProcess([called, *arguments], status, *printed)

    def _fork(
        self,
        namespace: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        streams: tuple[int, int, int],
        called: str,
    ) -> Fork:
        texts = [namespace, directory, called, json.dumps(list(arguments)), json.dumps(dict(environment))]
        return self.fork_server.fork(f"{__name__}:carry_out", texts, streams)


def carry_out(namespace: str, directory: str, called: str, arguments: str, environment: str, *streams: int) -> None:
    """In the fork: become that process; it ends here."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(SIGKILL), 0, 0, 0)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for stream in set(streams):
            os.close(stream)
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1, errors="backslashreplace")
        os.environ.clear()
        os.environ.update(json.loads(environment))
        os.chdir(directory)
        enter(namespace)
        show_own_sys(namespace)
        sys.argv = ["nodeagent", *json.loads(arguments)]
        status = exit_status(called)
    except BaseException:  # noqa: BLE001 - it is a process that ends
        traceback.print_exc()
    finally:
        os._exit(status)


def exit_status(called: str) -> int:
    """Run the command to its end, as an interpreter would."""
    try:
        main(prog_name=called)
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
