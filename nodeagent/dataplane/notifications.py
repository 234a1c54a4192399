"""What the kernel tells of its own accord about links, addresses and routes, read on the event loop."""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntFlag

_RECEIVE_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 20
_SO_RCVBUFFORCE = 33
_DATAGRAMS_AT_A_TIME = 256


class Group(IntFlag):
    """RTMGRP_* (linux/rtnetlink.h)."""

    LINKS = 0x1
    IPV4_ADDRESSES = 0x10
    IPV4_ROUTES = 0x40
    IPV6_ADDRESSES = 0x100
    IPV6_ROUTES = 0x400


@contextmanager
def following(groups: Group, take: Callable[[memoryview], None], lost: Callable[[], None]) -> Iterator[None]:
    """Inside, `take` gets every datagram of these groups, and `lost` is called when some could not be kept (ENOBUFS).

    Both are called on the running loop and must not block. Raises OSError when the kernel cannot be listened to.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE) as source:
        with suppress(OSError):  # without the privilege the buffer stays as it is, and more may be lost
            source.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        source.bind((0, groups))
        loop.add_reader(source, _drain, source, take, lost)
        try:
            yield
        finally:
            loop.remove_reader(source)


def _drain(source: socket.socket, take: Callable[[memoryview], None], lost: Callable[[], None]) -> None:
    for _ in range(_DATAGRAMS_AT_A_TIME):
        try:
            datagram = source.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            lost()
            return
        take(memoryview(datagram))
