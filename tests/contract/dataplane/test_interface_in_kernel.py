"""The service interface against a real kernel: what becomes local, what is left alone, what it costs."""

import asyncio
import errno
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.reports import InterfaceReport
from nodeagent.proxy.dataplane.interface import ForeignInterfaceError, ServiceInterface
from tests.harness.stopwatch import once_within

pytestmark = pytest.mark.kernel

T = TypeVar("T")
WatchLoop = Callable[[Awaitable[T]], Awaitable[tuple[T, float]]]
NOTHING: frozenset[str] = frozenset()


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def run_unprivileged(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


def some_vips(count: int, *, ipv6: int = 0) -> frozenset[str]:
    four = (f"10.96.{n >> 8}.{n & 255}" for n in range(1, count + 1))
    six = (f"fd00:96::{n:x}" for n in range(1, ipv6 + 1))
    return frozenset((*four, *six))


def sync(namespace: Namespace, interface: ServiceInterface, vips: frozenset[str]) -> InterfaceReport:
    return namespace.run(lambda: asyncio.run(interface.sync(vips)))


def apply(
    namespace: Namespace,
    interface: ServiceInterface,
    *,
    add: frozenset[str] = NOTHING,
    remove: frozenset[str] = NOTHING,
) -> InterfaceReport:
    return namespace.run(lambda: asyncio.run(interface.apply(add, remove)))


def read(namespace: Namespace, interface: ServiceInterface) -> frozenset[str]:
    return namespace.run(lambda: asyncio.run(interface.read()))


def reaches(address: str) -> bool:
    """Whether a datagram from this node to `address` comes back to a daemon of this node."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as server, socket.socket(family, socket.SOCK_DGRAM) as client:
        server.bind(("::" if ":" in address else "0.0.0.0", 0))
        server.settimeout(60)
        deadline = time.monotonic() + 60
        while True:
            try:
                client.connect((address, server.getsockname()[1]))
                break
            except OSError as error:  # the kernel makes an IPv6 address usable a moment later (addrconf_dad_work)
                if error.errno != errno.ENETUNREACH or time.monotonic() > deadline:
                    raise
        client.send(b"hello")
        return server.recv(16) == b"hello"


@pytest.mark.parametrize(
    ("four", "six"),
    [pytest.param(3, 0, id="IPv4"), pytest.param(0, 3, id="IPv6"), pytest.param(2, 2, id="dual-stack")],
)
def test_every_vip_is_local_to_the_node_as_address_and_as_route(namespace: Namespace, four: int, six: int) -> None:
    interface = ServiceInterface(address_limits=dict.fromkeys(Family, 1))
    vips = some_vips(four, ipv6=six)

    report = sync(namespace, interface, vips)

    assert report.problems == ()
    assert report.added == len(vips)
    assert read(namespace, interface) == vips
    assert all(namespace.run(lambda: [reaches(vip) for vip in vips]))


def test_a_namespace_in_which_nothing_was_local_before_is_no_obstacle(bare_namespace: Namespace) -> None:
    report = sync(bare_namespace, ServiceInterface(address_limits=dict.fromkeys(Family, 1)), some_vips(2, ipv6=2))

    assert (report.added, report.problems) == (4, ())
    assert read(bare_namespace, ServiceInterface()) == some_vips(2, ipv6=2)


def test_the_kind_is_dummy_or_else_bridge_and_is_reported(namespace: Namespace) -> None:
    has_dummy = namespace.shell("ip link add probe type dummy 2>/dev/null && echo yes || true").strip() == "yes"
    interface = ServiceInterface()

    report = sync(namespace, interface, some_vips(1))

    assert report.kind == interface.kind == ("dummy" if has_dummy else "bridge")
    assert f" {report.kind} " in namespace.shell("ip -d link show nodeagent0").replace("\n", " ")


def test_nothing_but_the_vips_appears_on_the_interface(namespace: Namespace) -> None:
    sync(namespace, ServiceInterface(), some_vips(1, ipv6=1))

    shown = namespace.shell("ip -o addr show dev nodeagent0")

    assert sorted(line.split()[3] for line in shown.splitlines()) == ["10.96.0.1/32"]


def test_ipv6_vips_are_routes_and_no_source_that_a_connection_must_look_at(namespace: Namespace) -> None:
    """The kernel looks at every address of the node when it chooses an IPv6 source (ipv6_dev_get_saddr)."""
    vips = some_vips(0, ipv6=3)
    sync(namespace, ServiceInterface(), vips)

    assert namespace.shell("ip -o -6 addr show dev nodeagent0") == ""
    assert all(namespace.run(lambda: [reaches(vip) for vip in vips]))


def test_an_ipv6_vip_that_is_an_address_is_usable_at_once_and_never_a_preferred_source(namespace: Namespace) -> None:
    sync(namespace, ServiceInterface(address_limits=dict.fromkeys(Family, 1)), some_vips(0, ipv6=1))

    shown = namespace.shell("ip -o -6 addr show dev nodeagent0")

    assert "tentative" not in shown
    assert "deprecated" in shown


def test_an_ipv4_vip_is_not_the_source_of_other_traffic(namespace: Namespace) -> None:
    """An unnumbered interface takes its source address from another one; scope host keeps VIPs out of that."""
    sync(namespace, ServiceInterface(), some_vips(5))
    namespace.shell("ip link add out type bridge; ip link set out up; ip route add 192.0.2.0/24 dev out")

    assert "src" not in namespace.shell("ip route get 192.0.2.1").replace("src 0.0.0.0", "")


def test_a_restart_with_nothing_changed_writes_nothing(namespace: Namespace) -> None:
    vips = some_vips(20, ipv6=20)
    sync(namespace, ServiceInterface(address_limits=dict.fromkeys(Family, 8)), vips)

    def restart() -> tuple[InterfaceReport, int]:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as events:
            events.bind((0, 0xFFFFFFFF))
            report = asyncio.run(ServiceInterface(address_limits=dict.fromkeys(Family, 8)).sync(vips))
            events.setblocking(False)
            try:
                return report, len(events.recv(65536))
            except BlockingIOError:
                return report, 0

    events_of_restarts = []
    for _ in range(3):
        report, bytes_of_events = namespace.run(restart)
        assert (report.added, report.removed, report.problems) == (0, 0, ())
        events_of_restarts.append(bytes_of_events)
    assert 0 in events_of_restarts, (
        "the kernel tells of a new IPv6 address late (addrconf_dad_work), of a write each time"
    )


def test_a_range_is_routed_over_the_interface_and_not_local(namespace: Namespace) -> None:
    vips = frozenset(("fd00:96::/108", "fd00:96::", "fd00:96::a"))
    report = sync(namespace, ServiceInterface("vips"), vips)
    assert (report.added, report.removed) == (3, 0)
    (route,) = namespace.shell("ip -6 route get fd00:96::1:1").splitlines()
    assert "dev vips table local" in route
    assert not route.startswith("local")

    again = ServiceInterface("vips")
    assert sync(namespace, again, vips).added == 0
    assert read(namespace, again) == vips
    apply(namespace, again, add=frozenset(("fd00:97::/112",)), remove=frozenset(("fd00:96::/108",)))
    assert read(namespace, again) == {"fd00:97::/112", "fd00:96::", "fd00:96::a"}


def test_ranges_stay_until_it_is_known_what_takes_their_place(namespace: Namespace) -> None:
    interface = ServiceInterface("vips")
    sync(namespace, interface, frozenset(("fd00:96::/108", "fd00:96::", "fd00:96::a")))
    namespace.run(lambda: asyncio.run(interface.retain(frozenset(("fd00:96::a",)))))
    assert read(namespace, interface) == {"fd00:96::/108", "fd00:96::a"}
    sync(namespace, interface, frozenset(("fd00:96::a",)))
    assert read(namespace, interface) == {"fd00:96::a"}


def test_programmed_addresses_keep_their_form_when_others_change(namespace: Namespace) -> None:
    interface = ServiceInterface(address_limits=dict.fromkeys(Family, 2))
    sync(namespace, interface, frozenset({"10.96.0.5", "10.96.0.6", "10.96.0.7"}))
    before = namespace.shell("ip -o addr show dev nodeagent0")

    report = sync(
        namespace,
        ServiceInterface(address_limits=dict.fromkeys(Family, 2)),
        frozenset({"10.96.0.1", "10.96.0.5", "10.96.0.6"}),
    )

    assert (report.added, report.removed) == (1, 1)
    assert namespace.shell("ip -o addr show dev nodeagent0") == before


def test_routes_survive_when_the_last_ipv4_address_goes(namespace: Namespace) -> None:
    """The kernel flushes an interface's IPv4 routes with its last address; one route becomes an address first."""
    interface = ServiceInterface(address_limits=dict.fromkeys(Family, 2))
    sync(namespace, interface, some_vips(6))
    remaining = frozenset({"10.96.0.3", "10.96.0.4", "10.96.0.5", "10.96.0.6"})

    report = apply(namespace, interface, remove=frozenset({"10.96.0.1", "10.96.0.2"}))

    assert (report.removed, report.problems) == (2, ())
    assert read(namespace, interface) == remaining
    assert all(namespace.run(lambda: [reaches(vip) for vip in remaining]))


def test_incremental_changes_without_a_sync_start_from_what_the_kernel_has(namespace: Namespace) -> None:
    sync(namespace, ServiceInterface(), some_vips(3))

    report = apply(namespace, ServiceInterface(), add=frozenset({"10.96.9.9"}), remove=frozenset({"10.96.0.1"}))

    assert (report.added, report.removed) == (1, 1)
    assert read(namespace, ServiceInterface()) == frozenset({"10.96.0.2", "10.96.0.3", "10.96.9.9"})


def test_a_deleted_interface_comes_back_with_everything_on_the_next_change(namespace: Namespace) -> None:
    interface = ServiceInterface()
    sync(namespace, interface, some_vips(3))
    namespace.shell("ip link del nodeagent0")

    apply(namespace, interface, add=frozenset({"10.96.9.9"}))

    assert read(namespace, interface) == some_vips(3) | {"10.96.9.9"}


def test_foreign_addresses_on_our_interface_are_removed(namespace: Namespace) -> None:
    sync(namespace, ServiceInterface(), some_vips(1))
    namespace.shell("ip addr add 192.0.2.1/24 dev nodeagent0; ip addr add 198.51.100.1/32 dev nodeagent0")

    report = sync(namespace, ServiceInterface(), some_vips(1))

    assert report.removed == 1
    assert "192.0.2" not in namespace.shell("ip addr show dev nodeagent0")
    assert read(namespace, ServiceInterface()) == some_vips(1)


def test_a_vip_that_another_interface_holds_becomes_local_to_ours_too(namespace: Namespace) -> None:
    """Moving from kube-proxy's IPVS mode: kube-ipvs0 holds every ClusterIP and is removed afterwards."""
    namespace.shell("ip link add kube-ipvs0 type bridge; ip link set kube-ipvs0 up")
    for vip in some_vips(2, ipv6=2):
        namespace.shell(f"ip addr add {vip}/{128 if ':' in vip else 32} dev kube-ipvs0 {'nodad' if ':' in vip else ''}")
    interface = ServiceInterface(address_limits=dict.fromkeys(Family, 1))

    report = sync(namespace, interface, some_vips(2, ipv6=2))
    namespace.shell("ip link del kube-ipvs0")

    assert report.problems == ()
    assert all(namespace.run(lambda: [reaches(vip) for vip in some_vips(2, ipv6=2)]))


def test_an_adopted_interface_that_is_down_and_generates_addresses_is_put_right(namespace: Namespace) -> None:
    namespace.shell("ip link add nodeagent0 type bridge")

    sync(namespace, ServiceInterface(), some_vips(1, ipv6=1))

    assert "fe80" not in namespace.shell("ip addr show dev nodeagent0")
    assert "UP" in namespace.shell("ip -o link show dev nodeagent0")


def test_a_foreign_interface_of_our_name_is_refused_and_left_alone(namespace: Namespace) -> None:
    namespace.shell("ip link add nodeagent0 type veth peer name other; ip addr add 192.0.2.1/24 dev nodeagent0")

    with pytest.raises(ForeignInterfaceError, match="veth"):
        sync(namespace, ServiceInterface(), some_vips(1))
    with pytest.raises(ForeignInterfaceError, match="veth"):
        namespace.run(lambda: asyncio.run(ServiceInterface().remove()))

    assert "192.0.2.1" in namespace.shell("ip addr show dev nodeagent0")


def test_disabled_ipv6_leaves_ipv4_working_and_is_reported_once(namespace: Namespace) -> None:
    namespace.shell("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
    interface = ServiceInterface()

    report = sync(namespace, interface, some_vips(2, ipv6=3))

    assert [(problem.reason, "1: IPv6 ClusterIPs" in problem.detail) for problem in report.problems] == [
        ("IPv6Disabled", True)
    ]
    assert read(namespace, interface) == some_vips(2)


def test_an_address_the_kernel_refuses_is_a_problem_and_the_others_are_programmed(namespace: Namespace) -> None:
    interface = ServiceInterface(address_limits=dict.fromkeys(Family, 1))

    report = sync(namespace, interface, frozenset({"ff02::1", "10.96.0.1"}))

    assert [problem.reason for problem in report.problems] == ["AddressNotProgrammed"]
    assert "ff02::1" in report.problems[0].detail
    assert (report.added, read(namespace, interface)) == (1, frozenset({"10.96.0.1"}))


def test_without_the_privilege_the_error_says_so_and_a_later_call_succeeds(namespace: Namespace) -> None:
    interface = ServiceInterface()

    with pytest.raises(PermissionError):
        namespace.run_unprivileged(lambda: asyncio.run(interface.sync(some_vips(2))))

    assert sync(namespace, interface, some_vips(2)).added == 2


def test_removal_takes_everything_and_can_be_repeated(namespace: Namespace) -> None:
    interface = ServiceInterface(address_limits=dict.fromkeys(Family, 1))
    sync(namespace, interface, some_vips(3, ipv6=3))

    for _ in range(2):
        namespace.run(lambda: asyncio.run(interface.remove()))

    assert "nodeagent0" not in namespace.shell("ip link; ip route show table local; ip -6 route show table local")
    assert read(namespace, interface) == frozenset()


@pytest.mark.parametrize(
    ("four", "six", "seconds"),
    [
        pytest.param(10_000, 0, 2.0, id="10k IPv4"),
        pytest.param(30_000, 0, 3.0, id="30k IPv4"),
        pytest.param(10_000, 10_000, 3.0, id="10k dual-stack"),
    ],
)
def test_many_vips_take_little_time_and_never_hold_the_loop(
    namespace: Namespace, watch_loop: WatchLoop[InterfaceReport], four: int, six: int, seconds: float
) -> None:
    """Of the processor's time, the kernel's part included, and the best of several: what else runs does not count."""
    vips = some_vips(four, ipv6=six)
    interface = ServiceInterface()

    async def timed() -> tuple[float, float]:
        await interface.remove()
        started = time.process_time()
        _, stalled = await watch_loop(interface.sync(vips))
        return time.process_time() - started, stalled

    def attempt() -> float:
        took, stalled = namespace.run(lambda: asyncio.run(timed()))
        assert read(namespace, interface) == vips
        return max(took / seconds, stalled / took * 10)

    once_within(1.0, attempt, f"of {seconds} s for all, or of a tenth of it for the longest hold of the loop")


def spin() -> None:
    began = time.thread_time()
    while time.thread_time() < began + 0.3:
        pass


@pytest.mark.parametrize("hold", [pytest.param(lambda: time.sleep(0.3), id="waits"), pytest.param(spin, id="works")])
def test_the_test_would_see_a_held_loop(watch_loop: WatchLoop[None], hold: Callable[[], None]) -> None:
    async def work() -> None:
        hold()

    async def stalls() -> float:
        _, stalled = await watch_loop(work())
        return stalled

    assert asyncio.run(stalls()) > 0.2


def over_lo(namespace: Namespace) -> list[str]:
    """The routes of table local over `lo` that are ours, as `ip` prints them, each with what it comes before."""
    lines = namespace.shell("ip -4 route show table local").splitlines()
    return [line.split()[1] for line in lines if "dev lo proto 110" in line]


def test_ipv4_vips_have_a_route_over_lo_that_comes_first(namespace: Namespace) -> None:
    """Without it a socket of the node never learns that the way is narrow (`tests/netns/test_narrow_path.py`)."""
    interface = ServiceInterface(address_limits=dict.fromkeys(Family, 1))
    sync(namespace, interface, some_vips(2, ipv6=2))

    assert over_lo(namespace) == ["10.96.0.1", "10.96.0.2"]
    for vip in ("10.96.0.1", "10.96.0.2"):
        both = [line.split()[3] for line in namespace.shell(f"ip -4 route show table local {vip}").splitlines()]
        assert both == ["lo", "nodeagent0"]
    apply(namespace, interface, add=frozenset({"10.96.0.9"}), remove=frozenset({"10.96.0.1"}))
    assert over_lo(namespace) == ["10.96.0.2", "10.96.0.9"]


def test_routes_over_lo_that_an_interface_left_behind_go_and_those_of_another_agent_stay(namespace: Namespace) -> None:
    sync(
        namespace,
        ServiceInterface("second0", address_limits=dict.fromkeys(Family, 1)),
        frozenset({"10.97.0.1", "10.97.0.2"}),
    )
    sync(namespace, ServiceInterface(), some_vips(2))
    namespace.shell("ip link del nodeagent0")
    assert over_lo(namespace) == ["10.96.0.1", "10.96.0.2", "10.97.0.1", "10.97.0.2"]

    sync(namespace, ServiceInterface(), some_vips(1))
    assert over_lo(namespace) == ["10.96.0.1", "10.97.0.1", "10.97.0.2"]
    namespace.shell("ip link del nodeagent0")
    namespace.run(lambda: asyncio.run(ServiceInterface().remove()))
    assert over_lo(namespace) == ["10.97.0.1", "10.97.0.2"]


def test_vips_are_local_without_routes_over_lo_while_that_is_down(namespace: Namespace) -> None:
    interface = ServiceInterface(address_limits=dict.fromkeys(Family, 1))
    namespace.shell("ip link set lo down")
    assert sync(namespace, interface, some_vips(2)).problems == ()
    assert read(namespace, interface) == some_vips(2)
    assert over_lo(namespace) == []

    namespace.shell("ip link set lo up")
    sync(namespace, interface, some_vips(2))
    assert over_lo(namespace) == ["10.96.0.1", "10.96.0.2"]
    namespace.shell("ip link set lo down")
    sync(namespace, interface, some_vips(1))
    assert over_lo(namespace) == ["10.96.0.1"]
