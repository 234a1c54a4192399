"""Actors in network namespaces that are not ours: of nodes, and of pods that a kubelet made.

An actor of the lab owns its namespace and ends everything in it. A guest leaves alone what it finds there.
"""

import ctypes
import os
import resource
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from nodeagent.lab.net.fork_server import Fork
from nodeagent.lab.net.network_namespaces import CLONE_NEWNET, DIRECTORY
from tests.harness.worlds.forks import SeparateForkServer
from tests.harness.worlds.sctp_actor import SctpActor


class GuestForks(SeparateForkServer):
    """A fork server for `Member`, whose actors are guests of the namespace they are named for."""

    def fork(self, function: str, arguments: Sequence[str], descriptors: Sequence[int] = ()) -> Fork:
        return super().fork(f"{__name__}:stay", arguments, descriptors)


def stay(namespace: str, descriptor: int) -> None:
    """Act in the namespace until the socket ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    channel = socket.socket(fileno=descriptor)
    try:
        enter(DIRECTORY / namespace)
        SctpActor(channel).run()
    finally:
        os._exit(0)


def enter(namespace: Path) -> None:
    """Move the calling thread there. Raises OSError."""
    place = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(place, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
    finally:
        os.close(place)
