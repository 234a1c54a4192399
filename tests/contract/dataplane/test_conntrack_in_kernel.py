"""The cleaner against the kernel's connection tracker, each test in a network namespace of its own."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.backoff import Backoff
from nodeagent.model.frontend import UdpPort
from nodeagent.model.reports import CleaningReport
from nodeagent.proxy.dataplane.conntrack_cleaner import ConntrackCleaner
from nodeagent.wire.netlink.framing import Request
from tests.contract.dataplane.tracked_flows import (
    GONE,
    GONE6,
    NODE,
    POD,
    POD6,
    VIP,
    VIP6,
    Namespace,
    Notebook,
    clean,
    given_flows,
    track,
    tracked,
    udp_port,
)
from tests.harness.effort import examples

pytestmark = pytest.mark.kernel

T = TypeVar("T")
WatchLoop = Callable[[Awaitable[T]], Awaitable[tuple[T, float]]]


def other_services(count: int) -> list[UdpPort]:
    return [udp_port(f"10.97.{n >> 8}.{n & 255}", name=f"other-{n}") for n in range(count)]


@pytest.mark.parametrize("others", [pytest.param(0, id="one place, selected"), pytest.param(50, id="many places")])
def test_exactly_the_stale_flows_are_deleted(namespace: Namespace, others: int) -> None:
    given_flows(
        namespace,
        [
            track(("10.0.0.1", 1), (VIP, 53), POD),
            track(("10.0.0.1", 2), (VIP, 53), GONE),
            track(("10.0.0.1", 3), (VIP, 53), (VIP, 53)),
            track(("10.0.0.1", 4), (VIP, 54), GONE),
            track(("10.0.0.1", 5), ("10.96.0.2", 53), GONE),
            track(("10.0.0.1", 6), (VIP, 53), GONE, protocol=socket.IPPROTO_TCP),
        ],
    )

    [report] = clean(namespace, udp_port(VIP), *other_services(others))

    assert {port for _, _, port in tracked(namespace)} == {1, 4, 5, 6}
    assert (report.deleted, report.gone, report.failed, report.error) == (2, 0, 0, "")
    assert report.complete


def test_ipv6_flows_are_deleted_likewise(namespace: Namespace) -> None:
    given_flows(
        namespace,
        [
            track(("fd00::1", 1), (VIP6, 53), POD6),
            track(("fd00::1", 2), (VIP6, 53), GONE6),
            track(("fd00::1", 3), ("fd00:96::2", 53), GONE6),
        ],
    )

    clean(namespace, udp_port(VIP6, serving=(POD6,), family=Family.IPV6))

    assert {port for _, _, port in tracked(namespace, "ipv6")} == {1, 3}


@pytest.mark.parametrize(
    "port",
    [
        pytest.param(udp_port(VIP, serving=()), id="it lost its last endpoint"),
        pytest.param(udp_port(VIP, name="deleted", serving=()), id="it was deleted"),
    ],
)
def test_a_service_that_nobody_serves_keeps_no_flow(namespace: Namespace, port: UdpPort) -> None:
    given_flows(namespace, [track(("10.0.0.1", n), (VIP, 53), POD) for n in range(1, 6)])

    clean(namespace, port)

    assert tracked(namespace) == set()


def test_a_node_port_is_cleaned_at_the_nodes_addresses_only(namespace: Namespace) -> None:
    given_flows(
        namespace,
        [
            track(("10.0.0.1", 1), (NODE, 30053), GONE),
            track(("10.0.0.1", 2), (NODE, 30053), POD),
            track(("10.0.0.1", 3), ("198.51.100.1", 30053), ("198.51.100.1", 30053)),
        ],
    )

    clean(namespace, udp_port(node_port=30053))

    assert {port for _, _, port in tracked(namespace)} == {2, 3}


def test_flows_in_a_zone_belong_to_somebody_else(namespace: Namespace) -> None:
    namespace.shell(
        f"conntrack -I -p udp -s 10.0.0.1 -d {VIP} --sport 1 --dport 53 -r {GONE[0]} -q 10.0.0.1"
        f" --reply-port-src 5353 --reply-port-dst 1 -t 100 -w 7"
    )

    clean(namespace, udp_port(VIP))

    assert len(tracked(namespace)) == 1


def test_a_client_that_sent_before_there_was_a_rule_reaches_the_endpoint_afterwards(namespace: Namespace) -> None:
    """Real packets: the socket's flow sticks to the untranslated service address until the entry is deleted."""
    namespace.shell(
        f"ip link add eth0 type bridge; ip addr add {NODE}/24 dev eth0; ip link set eth0 up; ip route add {VIP} dev eth0;"
        f"nft add table ip t; nft 'add chain ip t out {{ type nat hook output priority -100; }}';"
        f"nft 'add chain ip t see {{ type filter hook output priority 0; }}; add rule ip t see ct state new'"
    )
    rule = f"nft add rule ip t out ip daddr {VIP} udp dport 53 dnat to {NODE}:5353"

    async def story() -> tuple[bool, bool]:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
        ):
            endpoint.bind((NODE, 5353))
            endpoint.setblocking(False)
            client.connect((VIP, 53))

            def arrives() -> bool:
                client.send(b"hello")
                time.sleep(0.05)
                try:
                    return endpoint.recv(16) == b"hello"
                except BlockingIOError:
                    return False

            assert not arrives()
            process = await asyncio.create_subprocess_shell(rule)
            assert await process.wait() == 0
            before = arrives()
            cleaner = ConntrackCleaner(Notebook(), local_addresses=(NODE,))
            cleaner.submit([udp_port(VIP, serving=((NODE, 5353),))])
            await cleaner.clean()
            return before, arrives()

    assert namespace.run(lambda: asyncio.run(story())) == (False, True)


def test_the_running_cleaner_takes_up_what_is_submitted_and_is_idle_otherwise(namespace: Namespace) -> None:
    given_flows(namespace, [track(("10.0.0.1", n), (VIP, 53), (GONE, POD)[n % 2]) for n in range(1, 21)])

    async def story() -> list[CleaningReport]:
        notebook = Notebook()
        cleaner = ConntrackCleaner(notebook, local_addresses=(NODE,))
        running = asyncio.create_task(cleaner.run())
        cleaner.submit([udp_port(VIP)])
        await until(lambda: len(notebook.reports) == 1)
        cleaner.submit([udp_port(VIP)])
        assert cleaner.pending == 0
        cleaner.submit([udp_port(VIP, serving=())])
        await until(lambda: len(notebook.reports) == 2)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        return notebook.reports

    assert [report.deleted for report in namespace.run(lambda: asyncio.run(story()))] == [10, 10]


LATER, LATER6 = "192.0.2.77", "2001:db8::77"


@pytest.mark.parametrize("first_known", [pytest.param((NODE,), id="one more"), pytest.param((), id="the first")])
@pytest.mark.parametrize("deleted", [False, True], ids=["served", "deleted meanwhile"])
def test_flows_to_an_address_that_the_node_gets_later_are_judged_then(
    namespace: Namespace, first_known: tuple[str, ...], deleted: bool
) -> None:
    """A virtual address that comes back to the node finds what was tracked when it was here before."""
    given_flows(
        namespace,
        [
            track(("10.0.0.1", 1), (LATER, 30053), GONE),
            track(("10.0.0.1", 2), (LATER, 30053), POD),
            track(("10.0.0.1", 3), (LATER, 30054), GONE),
            track(("fd00::1", 4), (LATER6, 30053), GONE6),
            track(("fd00::1", 5), (LATER6, 30053), POD6),
            track(("10.0.0.1", 6), ("192.0.2.78", 30053), GONE),
        ],
    )

    async def story() -> None:
        notebook = Notebook()
        cleaner = ConntrackCleaner(notebook, local_addresses=first_known)
        cleaner.submit(
            [
                udp_port(VIP, node_port=30053),
                udp_port(VIP6, node_port=30053, serving=(POD6,), family=Family.IPV6),
            ]
        )
        await cleaner.clean()
        if deleted:
            gone = [udp_port(VIP, node_port=30053, serving=()), udp_port(VIP6, serving=(), family=Family.IPV6)]
            cleaner.submit(gone)
            await cleaner.clean()
        cleaning = asyncio.create_task(cleaner.run())
        assert cleaner.pending == 0
        before = len(notebook.reports)
        cleaner.node_addresses_changed((*first_known, LATER, LATER6))
        await until(lambda: len(notebook.reports) == before + 2)
        cleaner.node_addresses_changed((LATER,))
        assert cleaner.pending == 0, "an address that went leaves nothing to look at"
        cleaning.cancel()
        await asyncio.wait({cleaning})

    namespace.run(lambda: asyncio.run(story()))

    left = {port for _, _, port in tracked(namespace) | tracked(namespace, "ipv6")}
    assert left == ({3, 6} if deleted else {2, 3, 5, 6})


def test_a_port_with_thousands_of_endpoints_is_judged_by_the_last_word_too(namespace: Namespace) -> None:
    many = tuple((f"10.245.{n >> 8}.{n & 255}", 5353) for n in range(5000))
    flows = [track(("10.0.0.1", 1), (VIP, 53), GONE), track(("10.0.0.1", 2), (VIP, 53), many[4321])]
    given_flows(namespace, flows)

    assert [report.deleted for report in clean(namespace, udp_port(VIP, serving=many))] == [1]
    assert {port for _, _, port in tracked(namespace)} == {2}
    [report] = clean(namespace, udp_port(VIP, serving=many), udp_port(VIP))
    assert report.deleted == 1, "a small port that was big before"
    given_flows(namespace, flows[1:])
    [report] = clean(namespace, udp_port(VIP), udp_port(VIP, serving=many))
    assert report.deleted == 0, "a big one that was small before"


def test_a_pass_that_fails_is_reported_and_its_places_stay_pending(namespace: Namespace) -> None:
    given_flows(namespace, [track(("10.0.0.1", 1), (VIP, 53), GONE)])
    notebook = Notebook()
    cleaner = ConntrackCleaner(notebook, local_addresses=(NODE,))
    cleaner.submit([udp_port(VIP)])

    namespace.run_unprivileged(lambda: asyncio.run(cleaner.clean()))

    assert "not permitted" in notebook.reports[0].error
    assert cleaner.pending == 1
    namespace.run(lambda: asyncio.run(cleaner.clean()))
    assert (cleaner.pending, tracked(namespace)) == (0, set())


def test_the_running_cleaner_tries_again_after_failures(namespace: Namespace) -> None:
    given_flows(namespace, [track(("10.0.0.1", 1), (VIP, 53), GONE)])

    async def story() -> list[CleaningReport]:
        notebook = Notebook()
        cleaner = ConntrackCleaner(notebook, local_addresses=(NODE,), retry=Backoff(first_seconds=0.01))
        running = asyncio.create_task(cleaner.run())
        cleaner.submit([udp_port(VIP)])
        await until(lambda: len(notebook.reports) == 3)
        running.cancel()
        await asyncio.wait({running})
        return notebook.reports

    assert not any(report.complete for report in namespace.run_unprivileged(lambda: asyncio.run(story())))


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not happen in ten seconds")


def resident_megabytes() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.slow
def test_a_full_table_costs_neither_memory_nor_the_loop(
    namespace: Namespace, watch_loop: WatchLoop[list[CleaningReport]]
) -> None:
    """Flows by the hundred thousand, or as many as the machine's nf_conntrack_max admits; one in fifty is stale. It is looked
    through for one place, and again for a thousand."""
    limit = int(Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text())
    flows = min(examples(100_000), 500_000, limit - 1000)

    def flow(n: int) -> Request:
        return track((f"10.{n >> 14 & 255}.0.1", 1024 + (n & 16383)), (VIP, 53), GONE if n % 50 == 0 else POD)

    peak = [0.0]

    async def watch_memory() -> None:
        while True:
            peak[0] = max(peak[0], resident_megabytes())
            await asyncio.sleep(0.001)

    async def one_pass(others: int) -> tuple[CleaningReport, float]:
        watching = asyncio.create_task(watch_memory())
        cleaner = ConntrackCleaner(Notebook(), local_addresses=(NODE,))
        cleaner.submit([udp_port(VIP), *other_services(others)])
        [report], stalled = await watch_loop(cleaner.clean())
        watching.cancel()
        return report, stalled

    for others, missing in ((0, range(flows)), (1000, range(0, flows, 50))):
        given_flows(namespace, (flow(n) for n in missing))
        start = peak[0] = resident_megabytes()
        report, stalled = namespace.run(partial(asyncio.run, one_pass(others)))

        print(f"{flows} flows: {report}, +{peak[0] - start:.1f} MB, {stalled:.3f} s of stalls")
        assert (report.seen, report.deleted, report.complete) == (flows, -(-flows // 50), True)
        assert peak[0] - start < 30
        assert stalled < 0.1 * report.seconds
