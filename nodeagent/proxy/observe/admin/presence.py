"""Lets the agents of one network namespace see each other: each holds one of a few names.

The names are abstract sockets, which belong to the network namespace, as the tables do, and end with their process. A path
would not do: two agents by mistake have different files, or different mounts. Every process of the namespace can take such a name, so
only those of the system's users count.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_SOCK_DIAG
from nodeagent.wire.netlink.unix_sockets import get_unix_sockets, read_unix_socket

SLOTS = 4
"""More than this many agents are too many anyway."""
SYSTEM_USERS = 1000
"""Users below this number are the system's: root, and the one of the package (SYS_UID_MAX of login.defs)."""
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
        return _count_agents({slot for slot in _taken() if slot != self._slot})

    def close(self) -> None:
        self._socket.close()


def agents_here() -> int:
    """Returns how many agents of this network namespace program it. Raises OSError if that cannot be found out."""
    return _count_agents(set(_taken()))


def _count_agents(slots: set[int]) -> int:
    """Returns how many of these names a user holds who may run an agent; without an answer of the kernel, all."""
    users = _users() if slots else {}
    holders = (users.get(_name(slot).encode(), 0) for slot in slots)
    return sum(user < SYSTEM_USERS or user == os.geteuid() for user in holders)


def _users() -> dict[bytes, int]:
    """Returns the user of each named Unix socket here, as far as the kernel says it."""
    with suppress(OSError), NetlinkSocket(NETLINK_SOCK_DIAG) as netlink:
        found = [read_unix_socket(body) for body in netlink.dump(get_unix_sockets())]
        return {name: user for name, user in found if name and user is not None}
    return {}


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
