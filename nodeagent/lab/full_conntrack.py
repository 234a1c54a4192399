"""A full connection table: ``python -m nodeagent.lab.full_conntrack``, in a node's namespace.

Fills the namespace's table with assured flows, which the kernel does not evict for new ones, keeps it full, and removes
them when it ends (SIGTERM). The limit is the machine's (net.netfilter.nf_conntrack_max), but each namespace has its own
count, so other namespaces are not affected.
"""

import errno
import itertools
import signal
import socket
import sys
import time
from collections.abc import Iterator

from nodeagent.wire.netlink.conntrack import create_flow, delete_marked
from nodeagent.wire.netlink.framing import Request
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER

MARK = 0x6C6162
LIFETIME_SECONDS = 120
BATCH = 400
FIRST_BATCH = 16
"""A table that was full usually still is: then the kernel looks for a flow to evict for each new one, and each is tried again."""
TOP_UP_EVERY_SECONDS = 0.02
SERVER = (socket.inet_aton("192.0.2.254"), 9)
CLIENTS = 253


def fillers() -> Iterator[Request]:
    """Yields requests that create one flow each, between documentation addresses (RFC 5737)."""
    for number in itertools.cycle(range(CLIENTS << 16)):
        client = (bytes((192, 0, 2, 1 + (number >> 16))), number & 0xFFFF)
        yield create_flow(client, SERVER, mark=MARK, seconds=LIFETIME_SECONDS)


class Table:
    """The connection table of this namespace."""

    def __init__(self) -> None:
        self._socket = NetlinkSocket(NETLINK_NETFILTER)
        self._fillers = fillers()

    def fill(self) -> None:
        """Adds flows until the table is full. Raises OSError for any other failure."""
        for size in itertools.chain([FIRST_BATCH], itertools.repeat(BATCH)):
            found = {failure.errno for failure in self._socket.perform(itertools.islice(self._fillers, size))}
            if found - {errno.ENOMEM, errno.EEXIST}:
                raise OSError(found.pop(), "ctnetlink")
            if errno.ENOMEM in found:
                return

    def clear(self) -> None:
        """Removes the flows of this program, and no others."""
        self._socket.perform([delete_marked(MARK)])


def main() -> None:
    """Keeps the table full until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    table = Table()
    try:
        table.fill()
        print("full", flush=True)
        while True:
            time.sleep(TOP_UP_EVERY_SECONDS)
            table.fill()
    finally:
        table.clear()


if __name__ == "__main__":
    main()
