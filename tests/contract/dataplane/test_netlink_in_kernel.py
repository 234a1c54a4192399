"""The netlink socket against the kernel: who failed in a batch, what a question gets, who inherits it."""

import errno
import socket
import subprocess
from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest

from nodeagent.wire.netlink.rtnetlink import add_address, delete_address, get_addresses, get_link
from nodeagent.wire.netlink.socket import DumpInterruptedError, Failure, NetlinkSocket

pytestmark = pytest.mark.kernel

T = TypeVar("T")
LOOPBACK = 1
OWN = 2
"""Addresses that it has by itself, 127.0.0.1 and ::1."""


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...


def addresses(count: int) -> list[str]:
    return [f"10.0.{n >> 8}.{n & 255}" for n in range(count)]


def test_each_failing_message_of_many_batches_is_named(namespace: Namespace) -> None:
    """Every third of a thousand addresses is there already; the others are added all the same."""

    def story() -> tuple[list[Failure], list[Failure]]:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            netlink.perform(add_address(address, LOOPBACK) for address in addresses(1000)[::3])
            again = netlink.perform(add_address(address, LOOPBACK) for address in addresses(1000))
            removed = netlink.perform(delete_address(address, LOOPBACK) for address in addresses(1000))
            return again, removed

    again, removed = namespace.run(story)

    assert [failure.position for failure in again] == list(range(0, 1000, 3))
    assert {failure.errno for failure in again} == {errno.EEXIST}
    assert removed == []


def test_a_whole_batch_of_failures_fits_the_receive_buffer(namespace: Namespace) -> None:
    def story() -> list[Failure]:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            return netlink.perform(delete_address(address, LOOPBACK) for address in addresses(2000))

    assert len(namespace.run(story)) == 2000


def test_a_refused_question_says_why_and_the_socket_stays_usable(namespace: Namespace) -> None:
    def story() -> None:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            with pytest.raises(OSError) as refused:
                netlink.ask(get_link("nowhere"))
            assert refused.value.errno == errno.ENODEV
            assert len(netlink.ask(get_link("lo"))) > 0

    namespace.run(story)


def test_a_dump_that_is_not_read_to_its_end_does_not_hinder_the_next(namespace: Namespace) -> None:
    """The kernel answers EBUSY to a second dump on a socket whose first has not ended."""

    def story() -> tuple[int, int]:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
            netlink.perform(add_address(address, LOOPBACK) for address in addresses(2000))
            for _ in netlink.dump(get_addresses(LOOPBACK)):
                break
            return len(list(netlink.dump(get_addresses(LOOPBACK)))), len(list(netlink.dump(get_addresses(LOOPBACK))))

    assert namespace.run(story) == (2000 + OWN, 2000 + OWN)


def test_a_dump_that_is_interrupted_can_be_repeated(namespace: Namespace) -> None:
    def story() -> int:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink, NetlinkSocket(socket.NETLINK_ROUTE) as other:
            netlink.perform(add_address(address, LOOPBACK) for address in addresses(2000))

            def interrupted() -> None:
                for number, _ in enumerate(netlink.dump(get_addresses())):
                    if number == 0:
                        other.perform([add_address("10.9.9.9", LOOPBACK)])
                        other.perform([delete_address("10.9.9.9", LOOPBACK)])

            for _ in range(3):
                with pytest.raises(DumpInterruptedError):
                    interrupted()
            return len(list(netlink.dump(get_addresses())))

    assert namespace.run(story) == 2000 + OWN


def test_a_silent_kernel_is_an_error(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.wire.netlink.socket.REPLY_SECONDS", 0.05)

    def story() -> None:
        with NetlinkSocket(socket.NETLINK_ROUTE) as netlink, pytest.raises(TimeoutError):
            netlink.receive()

    namespace.run(story)


def test_processes_we_start_do_not_inherit_it(namespace: Namespace) -> None:
    def story() -> str:
        with NetlinkSocket(socket.NETLINK_ROUTE):
            listing = subprocess.run(
                ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False
            )
            return listing.stdout

    assert "socket:" not in namespace.run(story)
