"""What others do to the service interface is noticed at once, what the agent does itself is not, and nobody is fought."""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.interface import ServiceInterface
from nodeagent.proxy.dataplane.interface_drift import Drift, InterfaceNotifications
from nodeagent.proxy.dataplane.interface_watch import InterfaceWatch, RepairPace

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

T = TypeVar("T")
VIPS = frozenset({"10.96.0.1", "10.96.0.2", "10.96.0.3", "fd00:96::1", "fd00:96::2", "fd00:96::3"})
BOTH = dict.fromkeys(Family, 2)
"""Two of each family are addresses in these tests, the third is a local route."""
KNOWN_BY = ("192.0.2.11", "2001:db8::b")
AS_USUAL = {Family.IPV4: 2, Family.IPV6: 0}
A_NODE = """
    ip link set lo up; ip link add out type veth peer name wire; ip link set wire up; ip link set out up
    ip addr add 192.0.2.11/24 dev out; ip -6 addr add 2001:db8::b/64 dev out nodad
    ip addr add 198.51.100.1/24 dev out; ip -6 addr add 2001:db8:1::1/64 dev out nodad
    ip route add default via 192.0.2.1; ip -6 route add default via 2001:db8::1
    until ip -6 route get 2001:db8:9::9 >/dev/null 2>&1; do sleep 0.01; done
"""
SIX_OFF_AND_ON = "for now in 1 0; do echo $now >/proc/sys/net/ipv6/conf/{}/disable_ipv6; sleep {}; done"
BACK_AGAIN = """
    ip -6 addr replace 2001:db8::b/64 dev out nodad; ip -6 addr replace 2001:db8:1::1/64 dev out nodad
    ip -6 route replace default via 2001:db8::1
"""
"""What IPv6 lost with the switch, which the kernel does not bring back."""


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


class Keeper:
    """Stands for the engine: brings the interface back when the watch says so, and notes when."""

    def __init__(self, limits: dict[Family, int]) -> None:
        self.interface = ServiceInterface(address_limits=limits)
        self.called = 0
        self.reports: list[tuple[int, int]] = []
        self._wanted = asyncio.Event()

    def changed(self) -> None:
        self.called += 1
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                report = await self.interface.sync(VIPS, KNOWN_BY)
                complete = report.complete
                self.reports.append((report.added, report.removed))
            except OSError:
                complete = False
            if not complete:  # it was taken away under our hands; the engine tries again as well
                await asyncio.sleep(0.2)
                self._wanted.set()


async def shell(command: str) -> None:
    await asyncio.to_thread(subprocess.run, ["bash", "-ec", command], check=True, timeout=60)


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition is over plain values
            await asyncio.sleep(0.005)


def keep(namespace: Namespace, story: Callable[[Keeper], Awaitable[T]], limits: dict[Family, int] = BOTH) -> T:
    """What the story returns, with an interface that is programmed and watched."""

    async def main() -> T:
        keeper = Keeper(limits)
        await keeper.interface.sync(VIPS, KNOWN_BY)
        watching = asyncio.create_task(InterfaceWatch(keeper.interface, keeper.changed).run())
        keeping = asyncio.create_task(keeper.run())
        await asyncio.sleep(0.05)
        try:
            return await story(keeper)
        finally:
            for task in (watching, keeping):
                task.cancel()
            await asyncio.wait([watching, keeping])

    return namespace.run(lambda: asyncio.run(main()))


DEEDS = [
    pytest.param("ip link del nodeagent0", id="deleted"),
    pytest.param("ip link set nodeagent0 down", id="set down"),
    pytest.param("ip addr flush dev nodeagent0", id="flushed"),
    pytest.param("ip -6 addr flush dev nodeagent0", id="flushed of IPv6"),
    pytest.param("ip addr del 10.96.0.1/32 dev nodeagent0", id="one address gone"),
    pytest.param("ip addr del fd00:96::1/128 dev nodeagent0", id="one IPv6 address gone"),
    pytest.param("ip route del local 10.96.0.3 dev nodeagent0 table local", id="one route gone"),
    pytest.param("ip -6 route del local fd00:96::3 dev nodeagent0 table local", id="one IPv6 route gone"),
    pytest.param("ip route del local 10.96.0.2 dev lo table local", id="one route over lo gone"),
    pytest.param("ip addr add 192.0.2.1/24 dev nodeagent0", id="an address that is not ours"),
    pytest.param("ip link set nodeagent0 arp on", id="with ARP"),
    pytest.param("ip link set nodeagent0 down; ip link set nodeagent0 name other", id="renamed"),
]


@pytest.mark.parametrize("deed", DEEDS)
def test_changes_of_others_are_repaired_within_half_a_second(namespace: Namespace, deed: str) -> None:
    """The best counts: others may have the processor."""

    async def story(keeper: Keeper) -> float:
        best = 60.0
        for _ in range(8):
            before = len(keeper.reports)
            began = time.monotonic()
            await shell(deed)
            await until(lambda before=before: len(keeper.reports) > before)  # type: ignore[misc]
            async with asyncio.timeout(60):  # a deed of several steps may be seen half done, and again
                while await keeper.interface.read() != VIPS:  # noqa: ASYNC110 - no event says that nothing is left to do
                    await asyncio.sleep(0.01)
            best = min(best, time.monotonic() - began)
            await shell("ip link show dev nodeagent0 | grep -q 'NOARP.*UP'; ip link del other 2>/dev/null || true")
            if best < 0.5:
                return best
            await asyncio.sleep(8)  # a row of repairs ends
        return best

    assert keep(namespace, story) < 0.5
    assert "192.0.2.1" not in namespace.shell("ip addr show dev nodeagent0")


ALL_ROUTES = "ip -4 -o route show table local; ip -6 -o route show table local"


@pytest.mark.parametrize("silent", [False, True], ids=["notified", "not notified"])
@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(SIX_OFF_AND_ON.format("all", 0) + BACK_AGAIN, id="IPv6 off and on at once"),
        pytest.param(SIX_OFF_AND_ON.format("all", 1) + BACK_AGAIN, id="IPv6 off and on"),
        pytest.param(SIX_OFF_AND_ON.format("nodeagent0", 0), id="IPv6 of the interface off and on at once"),
        pytest.param(SIX_OFF_AND_ON.format("nodeagent0", 1), id="IPv6 of the interface off and on"),
        pytest.param(SIX_OFF_AND_ON.format("lo", 1), id="IPv6 of lo off and on"),
        pytest.param("ip link set lo down; ip link set lo up", id="lo down and up"),
        pytest.param(
            "ip addr flush dev lo; ip addr add 127.0.0.1/8 dev lo; ip addr add ::1/128 dev lo", id="lo flushed"
        ),
        pytest.param("ip link set nodeagent0 down; ip link set nodeagent0 up", id="the interface down and up"),
        pytest.param(
            "ip link set out down; ip link set out up" + BACK_AGAIN + "ip route replace default via 192.0.2.1",
            id="the node's link down and up",
        ),
        pytest.param(
            "ip addr del 192.0.2.11/24 dev out; ip addr add 192.0.2.11/24 dev out; ip route replace default via 192.0.2.1;"
            "ip -6 addr del 2001:db8::b/64 dev out;" + BACK_AGAIN,
            id="the node's address removed and added",
        ),
        pytest.param("ip route del default; sleep 0.5; ip route add default via 192.0.2.1", id="the default route"),
    ],
)
def test_all_routes_are_back_soon(namespace: Namespace, deed: str, *, silent: bool) -> None:
    """silent: the kernel does not tell of the IPv6 routes that go with a device."""
    namespace.shell(A_NODE + f"echo {int(silent)} >/proc/sys/net/ipv6/route/skip_notify_on_dev_down")

    def ours() -> list[str]:
        shown = subprocess.run(["sh", "-c", ALL_ROUTES], check=True, timeout=60, capture_output=True, text=True)
        return sorted(line for line in shown.stdout.splitlines() if "10.96.0." in line or "fd00:96::" in line)

    async def story(keeper: Keeper) -> None:
        before = ours()
        assert len([line for line in before if "src 192.0.2.11" in line]) == 3
        assert len([line for line in before if "src 2001:db8::b" in line]) == 3
        await shell(deed)
        await until(lambda: ours() == before)

    keep(namespace, story, AS_USUAL)


def test_a_change_while_the_interface_is_looked_at_is_not_forgotten(namespace: Namespace) -> None:
    namespace.shell(A_NODE)

    async def story(keeper: Keeper) -> None:
        differs = keeper.interface.differs

        async def slowly(notifications: InterfaceNotifications) -> Drift | None:
            found = await differs(notifications)
            if turn := next(turns, None):
                await shell(turn)
                await asyncio.sleep(0.2)
            return found

        turns = iter(["ip route del local 10.96.0.2 dev lo table local"])
        keeper.interface.differs = slowly  # type: ignore[method-assign]
        await shell("ip addr add 203.0.113.1/32 dev out")
        await until(lambda: len(keeper.reports) > 0)

    keep(namespace, story, AS_USUAL)


def test_the_agents_own_changes_are_not_reported(namespace: Namespace) -> None:
    async def story(keeper: Keeper) -> int:
        for turn in range(20):
            name = f"10.96.1.{turn}"
            await keeper.interface.apply(frozenset({name, f"fd00:96::1:{turn}"}), frozenset())
            if turn % 2:
                await keeper.interface.apply(frozenset(), frozenset({name}))
            await asyncio.sleep(0.01 * (turn % 4))
        await keeper.interface.sync(frozenset(f"10.97.{n >> 8}.{n & 255}" for n in range(3000)))
        await asyncio.sleep(0.5)
        return keeper.called

    assert keep(namespace, story) == 0


def test_changes_of_other_interfaces_are_nobodys_business(namespace: Namespace) -> None:
    async def story(keeper: Keeper) -> int:
        await shell(
            "ip link add br0 type bridge; ip link set br0 up; ip addr add 192.0.2.1/24 dev br0;"
            "ip route append local 192.0.2.77 dev br0 table local proto static;"
            "ip route add 198.51.100.0/24 dev br0; ip addr flush dev br0; ip link del br0"
        )
        await asyncio.sleep(0.3)
        return keeper.called

    assert keep(namespace, story) == 0


def test_a_tool_that_undoes_every_repair_is_answered_less_and_less(namespace: Namespace) -> None:
    """Within six seconds, or more on a busy machine, of deleting at once whatever comes: about as many repairs as fit 0.1 s,
    0.2 s, 0.4 s, …, eight or nine; at the tool's own pace they would be a hundred."""

    async def story(keeper: Keeper) -> int:
        tool = await asyncio.create_subprocess_exec(
            "bash", "-c", "while sleep 0.05; do ip link del nodeagent0 2>/dev/null; done"
        )
        await asyncio.sleep(6)
        repairs = len(keeper.reports)
        tool.kill()
        await tool.wait()
        async with asyncio.timeout(60):  # the last repair may be there already, or come after the pause
            while await keeper.interface.read() != VIPS:  # noqa: ASYNC110 - the kernel has no event for it here
                await asyncio.sleep(0.05)
        return repairs

    assert 3 <= keep(namespace, story) <= 14


def test_a_repair_waits_only_when_the_one_before_was_undone() -> None:
    pace = RepairPace()
    assert pace.pause(100.0) == 0.0
    pace.repaired(100.0)
    assert pace.pause(100.01) == 0.0, "the second comes at once as well"
    waited = []
    now = 100.01
    for _ in range(9):
        pace.repaired(now)
        waited.append(round(pace.pause(now), 3))
        now += pace.pause(now)
    assert waited == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert pace.pause(now + 60) == 0.0
    pace.repaired(now + 60)
    assert (pace.in_a_row, pace.pause(now + 60)) == (0, 0.0)
