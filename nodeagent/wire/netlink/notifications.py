"""The kernel's notifications about links, addresses and routes, read on the event loop."""

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntFlag

from nodeagent.wire.netlink.framing import MalformedMessageError
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi import rtnetlink as uapi
from nodeagent.wire.netlink.uapi.netlink import NETLINK_ROUTE

_BUFFER_BYTES = 1 << 20
_DATAGRAMS_AT_A_TIME = 256


class Group(IntFlag):
    """The groups of notifications, to be combined with `|`."""

    LINKS = uapi.RTMGRP_LINK
    IPV4_ADDRESSES = uapi.RTMGRP_IPV4_IFADDR
    IPV4_ROUTES = uapi.RTMGRP_IPV4_ROUTE
    IPV6_ADDRESSES = uapi.RTMGRP_IPV6_IFADDR
    IPV6_ROUTES = uapi.RTMGRP_IPV6_ROUTE


@contextmanager
def following(groups: Group, take: Callable[[memoryview], None], lost: Callable[[], None]) -> Iterator[None]:
    """Inside, `take` gets every datagram of these groups, and `lost` is called if some could not be kept (ENOBUFS) or read.

    Both are called on the running loop and must not block; a datagram is valid until `take` returns. Raises OSError if the kernel's
    notifications cannot be received.
    """
    loop = asyncio.get_running_loop()
    with NetlinkSocket(NETLINK_ROUTE, groups) as source:
        source.enlarge_receive_buffer(_BUFFER_BYTES)
        loop.add_reader(source, _drain, source, take, lost)
        try:
            yield
        finally:
            loop.remove_reader(source)


def _drain(source: NetlinkSocket, take: Callable[[memoryview], None], lost: Callable[[], None]) -> None:
    for _ in range(_DATAGRAMS_AT_A_TIME):
        try:
            datagram = source.receive_now()
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            lost()
            return
        if datagram is None:
            return
        try:
            take(datagram)
        except MalformedMessageError:
            lost()
