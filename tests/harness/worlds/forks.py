"""A fork server that is an interpreter of its own: `python -m tests.harness.worlds.forks MODULE... DESCRIPTOR`."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from nodeagent.lab.net.fork_server import ForkServer, main
from nodeagent.runtime.imports import import_all

PROGRAM = (sys.executable, "-m", "tests.harness.worlds.forks")


class SeparateForkServer(ForkServer):
    """Starts the server, which imports `modules` while the caller continues: a run of tests has more than one thread.

    spent: seconds of processor time of all servers that have ended, and of their forks.
    """

    spent = 0.0

    def __init__(self, *modules: str) -> None:
        root = str(Path(__file__).parents[3])
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [*PROGRAM, *modules, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": root},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the creator, which then ends what it has started
            )
        self.pid = process.pid
        self._process = process

    def close(self) -> None:
        before = os.times()
        self._orders.close()
        self._process.wait()
        after = os.times()
        SeparateForkServer.spent += sum(after[2:4]) - sum(before[2:4])  # user and system time of children


if __name__ == "__main__":
    *names, number = sys.argv[1:]
    import_all(names)
    main(int(number))
