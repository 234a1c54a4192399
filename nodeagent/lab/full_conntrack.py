"""A full connection table: ``python -m nodeagent.lab.full_conntrack``, in a node's namespace.

Fills the table of the namespace with assured flows, which the kernel does not give up for new ones, keeps it full, and
removes them when it is ended (SIGTERM). The limit is one of the machine (net.netfilter.nf_conntrack_max), but every
namespace has a count of its own, so nobody else is hurt.
"""

import errno
import itertools
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator

NETLINK_NETFILTER = 12
CREATE, DELETE = 0x0100, 0x0102  # NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW / IPCTNL_MSG_CT_DELETE
NLM_F_REQUEST, NLM_F_ACK, NLM_F_EXCL, NLM_F_CREATE = 0x1, 0x4, 0x200, 0x400
NLA_F_NESTED = 0x8000
TUPLE_ORIG, TUPLE_REPLY, STATUS, TIMEOUT, MARK, MARK_MASK = 1, 2, 3, 7, 8, 21  # enum ctattr_type
TUPLE_IP, TUPLE_PROTO = 1, 2
SEEN_REPLY_ASSURED_CONFIRMED = 0x2 | 0x4 | 0x8  # enum ip_conntrack_status
OURS = 0x6C6162
LIFETIME = 120
BATCH = 400
TOP_UP_EVERY = 0.02
NLMSG_ERROR = 2


def attribute(kind: int, value: bytes) -> bytes:
    """One netlink attribute, padded."""
    return struct.pack("=HH", len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def flow(source: str, destination: str, ports: tuple[int, int]) -> bytes:
    """A UDP tuple (nfnetlink_conntrack.h: CTA_IP_V4_SRC, CTA_PROTO_NUM and the like)."""
    addresses = attribute(1, socket.inet_aton(source)) + attribute(2, socket.inet_aton(destination))
    numbers = attribute(1, bytes([socket.IPPROTO_UDP]))
    numbers += attribute(2, struct.pack("!H", ports[0])) + attribute(3, struct.pack("!H", ports[1]))
    return attribute(TUPLE_IP | NLA_F_NESTED, addresses) + attribute(TUPLE_PROTO | NLA_F_NESTED, numbers)


def message(kind: int, flags: int, attributes: bytes) -> bytes:
    """A message of ctnetlink for IPv4."""
    body = struct.pack("=BBH", socket.AF_INET, 0, 0) + attributes
    return struct.pack("=IHHII", len(body) + 16, kind, flags | NLM_F_REQUEST, 0, 0) + body


def fillers() -> Iterator[bytes]:
    """Messages that make one flow each, between addresses that nobody has (RFC 5737)."""
    rest = attribute(STATUS, struct.pack("!I", SEEN_REPLY_ASSURED_CONFIRMED))
    rest += attribute(TIMEOUT, struct.pack("!I", LIFETIME)) + attribute(MARK, struct.pack("!I", OURS))
    for number in itertools.cycle(range(254 << 16)):
        here, there, port = f"192.0.2.{1 + (number >> 16)}", "192.0.2.254", number & 0xFFFF
        there_and_back = attribute(TUPLE_ORIG | NLA_F_NESTED, flow(here, there, (port, 9)))
        there_and_back += attribute(TUPLE_REPLY | NLA_F_NESTED, flow(there, here, (9, port)))
        yield message(CREATE, NLM_F_CREATE | NLM_F_EXCL, there_and_back + rest)


def errors(answers: bytes) -> Iterator[int]:
    """The errno of each answer that has one."""
    while len(answers) >= 20:
        length, kind = struct.unpack_from("=IH", answers)
        if kind == NLMSG_ERROR:
            yield -struct.unpack_from("=i", answers, 16)[0]
        answers = answers[(length + 3) & ~3 :]


class Table:
    """The connection table of this namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind((0, 0))
        self._fillers = fillers()

    def fill(self) -> None:
        """Add flows until there is no room. Raises OSError for another reason than that."""
        while True:
            self._socket.send(b"".join(itertools.islice(self._fillers, BATCH)))
            found = set(self._answers())
            if found - {errno.ENOMEM, errno.EEXIST, 0}:
                raise OSError(found.pop(), "ctnetlink")
            if errno.ENOMEM in found:
                return

    def _answers(self) -> Iterator[int]:
        while True:
            try:
                yield from errors(self._socket.recv(1 << 20, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return

    def clear(self) -> None:
        """Remove the flows of this program, and no other."""
        mark = attribute(MARK, struct.pack("!I", OURS)) + attribute(MARK_MASK, struct.pack("!I", 0xFFFFFFFF))
        self._socket.send(message(DELETE, NLM_F_ACK, mark))
        self._socket.settimeout(10.0)
        self._socket.recv(1 << 16)


def main() -> None:
    """Until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    table = Table()
    try:
        table.fill()
        print("full", flush=True)
        while True:
            time.sleep(TOP_UP_EVERY)
            table.fill()
    finally:
        table.clear()


if __name__ == "__main__":
    main()
