"""Lets the agents of one network namespace see each other: each holds one of a few names.

The names are abstract sockets, which belong to the network namespace, as the tables do, and end with their process. A path
would not do: two agents by mistake have different files, or different mounts.
"""

import socket
from collections.abc import Iterator

SLOTS = 4
"""More than so many agents are too many anyway."""
SEE_THEM = "ss -xap | grep nodeagent-agent"


class Presence:
    """Holds a free name until `close`. Without one (all are taken) it holds none, and sees others nevertheless."""

    def __init__(self) -> None:
        self._slot: int | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for slot in range(SLOTS):
            try:
                self._socket.bind(_name(slot))
            except OSError:
                continue
            self._slot = slot
            break

    @property
    def others(self) -> int:
        """How many other agents there are."""
        return sum(slot != self._slot for slot in _taken())

    def close(self) -> None:
        self._socket.close()


def agents_here() -> int:
    """Returns how many agents of this network namespace program it. Raises OSError if that cannot be found out."""
    return sum(1 for _ in _taken())


def _taken() -> Iterator[int]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        for slot in range(SLOTS):
            try:
                caller.connect(_name(slot))
            except ConnectionRefusedError:
                continue
            yield slot


def _name(slot: int) -> str:
    return f"\0nodeagent-agent-{slot}"
