"""The node's addresses as the kernel has them, and how soon and how often changes of them are reported."""

import asyncio
import resource
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import pytest

from nodeagent.proxy.dataplane.node_addresses import LocalAddress, NodeAddresses

pytestmark = pytest.mark.kernel

T = TypeVar("T")

LOOPBACK = {LocalAddress("lo", "127.0.0.1", 8), LocalAddress("lo", "::1", 128)}


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


class Notebook:
    """A listener that keeps what it receives."""

    def __init__(self) -> None:
        self.reported: list[frozenset[LocalAddress]] = []

    def node_addresses_changed(self, addresses: frozenset[LocalAddress]) -> None:
        self.reported.append(addresses)


async def shell(command: str) -> None:
    await asyncio.to_thread(subprocess.run, ["bash", "-ec", command], check=True, timeout=60)


def add_while_the_loop_waits(batch: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not happen in ten seconds")


def follow(namespace: Namespace, story: Callable[[Notebook], Awaitable[None]]) -> list[frozenset[LocalAddress]]:
    """What a listener receives while `story` happens."""

    async def main() -> list[frozenset[LocalAddress]]:
        notebook = Notebook()
        following = asyncio.create_task(NodeAddresses(notebook, quiet_seconds=0.05).run())
        await until(lambda: len(notebook.reported) == 1)
        await story(notebook)
        following.cancel()
        await asyncio.wait({following})
        assert following.cancelled()
        return notebook.reported

    return namespace.run(lambda: asyncio.run(main()))


def test_the_addresses_are_reported_at_once(namespace: Namespace) -> None:
    async def nothing_happens(_: Notebook) -> None:
        return

    assert follow(namespace, nothing_happens) == [LOOPBACK]


def test_a_new_or_removed_address_is_reported(namespace: Namespace) -> None:
    async def story(notebook: Notebook) -> None:
        await shell("ip link add eth0 type bridge; ip addr add 192.0.2.1/24 dev eth0")
        await until(lambda: LocalAddress("eth0", "192.0.2.1", 24) in notebook.reported[-1])
        await shell("ip addr del 192.0.2.1/24 dev eth0; ip -6 addr add 2001:db8::1/64 dev eth0")
        await until(lambda: LocalAddress("eth0", "2001:db8::1", 64) in notebook.reported[-1])

    assert LocalAddress("eth0", "192.0.2.1", 24) not in follow(namespace, story)[-1]


def test_simultaneous_changes_are_reported_together(namespace: Namespace) -> None:
    async def story(notebook: Notebook) -> None:
        await shell("ip link add eth0 type bridge")
        await shell("for n in {1..100}; do echo addr add 192.0.2.$n/32 dev eth0; done | ip -batch -")
        await until(lambda: len(notebook.reported[-1]) == 102)

    assert len(follow(namespace, story)) <= 3


def test_addresses_of_our_own_interface_do_not_count(namespace: Namespace) -> None:
    async def story(notebook: Notebook) -> None:
        await shell("ip link add nodeagent0 type bridge; ip addr add 10.96.0.1/32 dev nodeagent0")
        await shell("ip link add eth0 type bridge; ip addr add 192.0.2.1/24 dev eth0")
        await until(lambda: len(notebook.reported) == 2)

    assert follow(namespace, story)[-1] == LOOPBACK | {LocalAddress("eth0", "192.0.2.1", 24)}


def test_lost_notifications_lead_to_reading_everything_again(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """More notifications than the socket's buffer holds, all while the loop is held up."""
    addresses = "link add eth0 type bridge\n" + "\n".join(
        f"addr add 10.0.{n >> 8}.{n & 255}/32 dev eth0" for n in range(1, 3001)
    )

    async def story(notebook: Notebook) -> None:
        add_while_the_loop_waits(addresses)
        await until(lambda: len(notebook.reported[-1]) == 3002)

    with caplog.at_level("INFO"):
        follow(namespace, story)

    assert "notifications were lost" in caplog.text


@contextmanager
def no_file_to_spare() -> Iterator[None]:
    """Inside, this process can open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_without_a_file_to_spare_reads_the_addresses_later(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(notebook: Notebook) -> None:
        command = "read; ip link add eth0 type bridge; ip addr add 192.0.2.1/24 dev eth0"
        changing = await asyncio.create_subprocess_exec("bash", "-ec", command, stdin=asyncio.subprocess.PIPE)
        with no_file_to_spare():
            await changing.communicate(b"\n")
            await until(lambda: "cannot read the addresses of this node" in caplog.text)
        await until(lambda: LocalAddress("eth0", "192.0.2.1", 24) in notebook.reported[-1])

    follow(namespace, story)


def test_addresses_that_come_and_go_without_a_pause_stop_nobody(namespace: Namespace) -> None:
    """The kernel gives no consistent list meanwhile; it is long because of the ClusterIPs on our own interface."""
    cluster_ips = "".join(f"addr add 10.96.{n >> 8}.{n & 255}/32 dev nodeagent0\n" for n in range(1, 4001))
    restless = "addr add 192.0.2.1/24 dev eth0\naddr del 192.0.2.1/24 dev eth0\n" * 20000

    async def story(notebook: Notebook) -> None:
        await shell("ip link add nodeagent0 type bridge; ip link add eth0 type bridge")
        await asyncio.to_thread(add_while_the_loop_waits, cluster_ips)
        await asyncio.to_thread(add_while_the_loop_waits, restless)
        await shell("ip addr add 192.0.2.2/24 dev eth0")
        await until(lambda: LocalAddress("eth0", "192.0.2.2", 24) in notebook.reported[-1])

    assert follow(namespace, story)[-1] == LOOPBACK | {LocalAddress("eth0", "192.0.2.2", 24)}
