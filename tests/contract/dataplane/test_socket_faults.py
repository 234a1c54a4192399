"""A socket that fails at any one call leaves a service interface that the next pass puts right, and is never waited for."""

import asyncio
import errno
from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.interface import ServiceInterface
from tests.harness.socket_faults import CALLS, ERRORS, failing_once

pytestmark = pytest.mark.kernel

T = TypeVar("T")
BEFORE = frozenset({"10.96.0.1", "10.96.0.2", "fd00:96::1"})
ADDED = frozenset({"10.96.0.3", "10.96.0.4", "fd00:96::2"})
REMOVED = frozenset({"10.96.0.1", "fd00:96::1"})
AFTER = (BEFORE | ADDED) - REMOVED


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


@pytest.mark.parametrize("number", ERRORS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("whole", [False, True], ids=["a change", "a full comparison"])
def test_the_next_pass_puts_right_what_a_failed_one_left(
    namespace: Namespace, call: str, number: int, whole: bool
) -> None:
    async def change(interface: ServiceInterface) -> None:
        await (interface.sync(AFTER) if whole else interface.apply(ADDED, REMOVED))

    async def story(at: int) -> bool:
        interface = ServiceInterface(address_limits=dict.fromkeys(Family, 1))
        await interface.sync(BEFORE)
        with failing_once(call, at, number) as failed:
            try:
                await change(interface)
            except OSError as error:
                assert error.errno == number  # noqa: PT017 - it may pass over a failure, too
        await change(interface)
        assert await interface.read() == AFTER
        return failed()

    at = 0
    while namespace.run(lambda at=at: asyncio.run(story(at))):  # type: ignore[misc]
        at += 1
    assert at > 3, "it asks the kernel more often than that"
    lines = namespace.shell("ip -4 route show table local proto 110").splitlines()
    assert sorted(line.split()[1] for line in lines) == sorted(vip for vip in AFTER if "." in vip)
