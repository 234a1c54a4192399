"""Something changes the service interface or a sysctl and nothing reports it: the audit finds it, and it is repaired."""

import asyncio
import errno
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.reports import DriftReport
from nodeagent.proxy.dataplane import interface_watch
from nodeagent.proxy.dataplane.interface import ServiceInterface
from nodeagent.proxy.dataplane.interface_drift import Drift, Programmed
from nodeagent.proxy.dataplane.interface_watch import InterfaceWatch
from nodeagent.proxy.dataplane.node_sysctls import NodeSysctls
from nodeagent.proxy.dataplane.sysctl import ConntrackOptions
from tests.harness.socket_faults import CALLS, ERRORS, failing_once

pytestmark = pytest.mark.kernel

T = TypeVar("T")
VIPS = frozenset({"10.96.0.1", "10.96.0.2", "10.96.0.3", "fd00:96::1", "fd00:96::2", "fd00:96::3", "fd00:97::/112"})
BOTH = dict.fromkeys(Family, 2)
FORWARDING = "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"
PATIENCE = 20.0


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


async def shell(command: str) -> None:
    await asyncio.to_thread(subprocess.run, ["bash", "-ec", command], check=True, timeout=60)


def on_interface(namespace: Namespace, story: Callable[[ServiceInterface], Awaitable[T]]) -> T:
    """What the story returns, with an interface that is programmed and that nobody watches."""

    async def main() -> T:
        interface = ServiceInterface(address_limits=BOTH)
        assert (await interface.sync(VIPS)).complete
        return await story(interface)

    return namespace.run(lambda: asyncio.run(main()))


DEEDS = [
    pytest.param("ip link del nodeagent0", "link", "it is gone", id="deleted"),
    pytest.param("ip link set nodeagent0 down", "link", "lacks a setting", id="set down"),
    pytest.param("ip link set nodeagent0 arp on", "link", "lacks a setting", id="with ARP"),
    pytest.param("ip link set nodeagent0 alias other", "link", "lacks a setting", id="another alias"),
    pytest.param("ip link set nodeagent0 down; ip link set nodeagent0 name other", "link", "gone", id="renamed"),
    pytest.param("ip addr del 10.96.0.1/32 dev nodeagent0", "addresses", "10.96.0.1 is gone", id="an address gone"),
    pytest.param("ip addr del fd00:96::1/128 dev nodeagent0", "addresses", "fd00:96::1 is gone", id="an IPv6 one gone"),
    pytest.param(
        "ip addr add 192.0.2.1/24 dev nodeagent0", "addresses", "192.0.2.1/24 is not ours", id="an address more"
    ),
    pytest.param(
        "ip route del local 10.96.0.3 dev nodeagent0 table local", "routes", "to 10.96.0.3 is gone", id="a route gone"
    ),
    pytest.param(
        "ip -6 route del fd00:97::/112 dev nodeagent0 table local",
        "routes",
        "to fd00:97::/112 is gone",
        id="an IPv6 range gone",
    ),
    pytest.param(
        "ip route del local 10.96.0.2 dev lo table local", "routes", "over lo to 10.96.0.2", id="a route over lo gone"
    ),
]


@pytest.mark.parametrize(("deed", "kind", "says"), DEEDS)
def test_an_unreported_change_is_found_and_repaired(namespace: Namespace, deed: str, kind: str, says: str) -> None:
    namespace.shell(
        "ip link add out type veth peer name wire; ip link set out up; ip link set wire up;"
        "ip addr add 192.0.2.11/24 dev out; ip route add default via 192.0.2.1"
    )

    async def story(interface: ServiceInterface) -> None:
        assert await interface.audit() is None
        await shell(deed)
        assert await interface.audit() is Drift.CHANGED
        assert interface.last_drift.kind == kind
        assert says in interface.last_drift.detail
        assert await interface.audit() is None, "it is said once"
        if "name other" in deed:
            await shell("ip link del other")
        assert (await interface.sync(VIPS)).complete
        assert await interface.read() == VIPS
        assert await interface.audit() is None

    on_interface(namespace, story)
    shown = namespace.shell("ip -d link show dev nodeagent0; ip addr show dev nodeagent0; ip route show table local")
    assert "NOARP" in shown
    assert "192.0.2.1/24" not in shown
    assert "local 10.96.0.2 dev lo" in shown


def test_another_address_of_the_node_is_found_and_followed(namespace: Namespace) -> None:
    namespace.shell("ip link add out type veth peer name wire; ip link set out up; ip addr add 192.0.2.11/24 dev out")
    known_by = ("192.0.2.12", "192.0.2.11")

    async def story(interface: ServiceInterface) -> None:
        await interface.sync(VIPS, known_by)
        assert await interface.audit() is None
        await shell("ip addr add 192.0.2.12/24 dev out")
        assert await interface.audit() is Drift.SOURCE
        await interface.sync(VIPS, known_by)
        assert await interface.audit() is None

    on_interface(namespace, story)
    assert "local 10.96.0.2 dev lo proto 110 scope host src 192.0.2.12" in namespace.shell("ip route show table local")


def test_a_change_of_the_agent_itself_is_not_drift(namespace: Namespace) -> None:
    async def story(interface: ServiceInterface) -> None:
        await interface.sync(frozenset(f"10.97.{n >> 8}.{n & 255}" for n in range(3000)))
        audits = turn = 0

        async def audit() -> None:
            nonlocal audits
            while audits < 20 or turn < 10:
                assert await interface.audit() is None
                audits += 1

        auditing = asyncio.create_task(audit())
        while not auditing.done():
            turn += 1
            some = frozenset(f"10.98.{turn & 255}.{n}" for n in range(50))
            await interface.apply(some, frozenset())
            await interface.apply(frozenset(), some)
        await auditing

    on_interface(namespace, story)


def test_a_call_that_programs_does_not_wait_for_an_audit(namespace: Namespace) -> None:
    async def story(interface: ServiceInterface) -> None:
        read, reading, go_on = interface._read_parts, asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slowly(programmed: Programmed) -> object:
            found = read(programmed)
            loop.call_soon_threadsafe(reading.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            return found

        interface._read_parts = slowly  # type: ignore[method-assign,assignment]
        auditing = asyncio.create_task(interface.audit())
        await reading.wait()
        await interface.apply(frozenset({"10.96.0.9"}), frozenset())
        go_on.set()
        assert await auditing is None

    on_interface(namespace, story)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("number", [*ERRORS, errno.EBUSY])
def test_a_kernel_that_refuses_or_loses_an_answer_is_no_drift(namespace: Namespace, call: str, number: int) -> None:
    """At each call of an audit once; the watch looks again after an OSError."""

    async def story(interface: ServiceInterface) -> None:
        reached, at = True, 0
        while reached:
            with failing_once(call, at, number) as failed:
                with suppress(OSError):
                    assert await interface.audit() is None
                reached = failed()
            at += 1
        assert at > 5
        await shell("ip addr del 10.96.0.1/32 dev nodeagent0")
        assert await interface.audit() is Drift.CHANGED

    on_interface(namespace, story)


def test_a_watch_that_hears_nothing_repairs_and_says_what_it_was(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface_watch, "AUDIT_SECONDS", 0.3)
    monkeypatch.setattr(InterfaceWatch, "_take", lambda *_: None)
    found: list[DriftReport] = []

    async def story(interface: ServiceInterface) -> None:
        wanted = asyncio.Event()
        watching = asyncio.create_task(InterfaceWatch(interface, wanted.set, found.append).run())
        await asyncio.sleep(1.5)
        assert not found
        await shell("ip route del local 10.96.0.3 dev nodeagent0 table local")
        async with asyncio.timeout(PATIENCE):
            await wanted.wait()
        watching.cancel()
        assert (await interface.sync(VIPS)).added == 1

    on_interface(namespace, story)
    assert found == [DriftReport("interface", "routes", "route to 10.96.0.3 is gone")]


def test_a_sysctl_that_somebody_changes_is_set_again(namespace: Namespace) -> None:
    found: list[DriftReport] = []
    sysctls = NodeSysctls(ConntrackOptions(max_per_core=0), manage=True, found=found.append)
    namespace.shell(f"sysctl -qw {FORWARDING[0]}=0 {FORWARDING[1]}=0")
    namespace.run(lambda: sysctls.forward(tuple(Family)))
    assert namespace.run(sysctls.problems) == ()
    assert found == []

    for name in FORWARDING:
        namespace.shell(f"sysctl -qw {name}=0")
        assert namespace.run(sysctls.problems) == ()
        assert namespace.shell(f"sysctl -n {name}").strip() == "1"
        assert found.pop() == DriftReport("sysctl", "value", f"{name} was 0, not 1")
    assert namespace.run(sysctls.problems) == ()
    assert found == []


def test_a_sysctl_that_protects_a_learned_default_route_is_set_again(namespace: Namespace, tmp_path: Path) -> None:
    """`accept_ra` of interfaces that have such routes; an interface that has gone is no problem."""
    found: list[DriftReport] = []
    sysctls = NodeSysctls(ConntrackOptions(), manage=True, found=found.append)
    namespace.shell("ip link add uplink type veth peer name router; sysctl -qw net.ipv6.conf.all.forwarding=0")

    def forward() -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("nodeagent.proxy.dataplane.sysctl._hardware_interfaces", lambda _: {"uplink"})
            sysctls.forward((Family.IPV6,))

    namespace.run(forward)
    setting = "net.ipv6.conf.uplink.accept_ra"
    assert namespace.shell(f"sysctl -n {setting}").strip() == "2"

    namespace.shell(f"sysctl -qw {setting}=1")
    assert namespace.run(sysctls.problems) == ()

    assert namespace.shell(f"sysctl -n {setting}").strip() == "2"
    assert found == [DriftReport("sysctl", "value", f"{setting} was 1, not 2")]
    namespace.shell("ip link del uplink")
    assert namespace.run(sysctls.problems) == ()


def test_an_agent_that_may_only_look_reports_a_sysctl(namespace: Namespace) -> None:
    found: list[DriftReport] = []
    namespace.shell(f"sysctl -qw {FORWARDING[0]}=1")
    sysctls = NodeSysctls(ConntrackOptions(), manage=False, found=found.append)
    namespace.run(lambda: sysctls.forward((Family.IPV4,)))
    namespace.shell(f"sysctl -qw {FORWARDING[0]}=0")

    [problem] = namespace.run(sysctls.problems)

    assert (problem.subject, problem.reason) == (f"sysctl {FORWARDING[0]}", "SysctlNotSet")
    assert namespace.shell(f"sysctl -n {FORWARDING[0]}").strip() == "0"
    assert found == []
