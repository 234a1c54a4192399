"""Others read the whole ruleset while endpoints churn."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli import follow_sample
from nodeagent.daemon.connection_follower import ConnectionFollower
from nodeagent.diagnosis.trace.kernel_routes import KernelRoutes
from nodeagent.diagnosis.trace.routes import Leg, Route
from nodeagent.model.frontend import ServiceState
from nodeagent.model.problem import Retryable
from nodeagent.proxy.dataplane import ruleset_readers
from nodeagent.proxy.dataplane.followed_sample import FollowedSample
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.ruleset_readers import NetfilterSockets
from nodeagent.proxy.engine.reader_window import ReaderWindow, Sockets
from nodeagent.wire.netlink.framing import Request
from nodeagent.wire.netlink.nf_tables.batch import request as ruleset_request
from nodeagent.wire.netlink.nf_tables.ruleset_objects import named_set
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER, SOCK_DIAG_BY_FAMILY
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETSETELEM
from nodeagent.wire.netlink.uapi.nfnetlink import NFPROTO_IPV4
from tests.contract.driver.conftest import NODE, Agent
from tests.harness.effort import AT_LENGTH, PUNCTUAL

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
SERVICES, ENDPOINTS = 1000, 10
"""nft lists them in 0.2 s of processor time, which is more than the time between two changes."""
WITHIN = 45.0 if PUNCTUAL else 180.0
NEVER = 6.0
FOLLOWED_TIMES = 20
NFT_1_1 = Path(".tools/nft-1.1/nft").resolve()


@pytest.fixture
def agent(kernel: Any, service: MakeService) -> Agent:
    made: Agent = kernel.start()
    made.sync(*(state(service, number, ENDPOINTS) for number in range(SERVICES)))
    return made


def state(service: MakeService, number: int, endpoints: int) -> ServiceState:
    pods = (f"10.244.{number % 200}.{pod}" for pod in range(1, endpoints + 1))
    return service(f"s{number}", f"10.96.{1 + number // 250}.{1 + number % 250}", *pods)


@pytest.fixture
def sockets() -> Iterator[NetfilterSockets]:
    made = NetfilterSockets()
    yield made
    made.close()


@pytest.fixture(params=["by netlink", "by /proc"])
def either_way(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, sockets: NetfilterSockets
) -> NetfilterSockets:
    if request.param == "by /proc":
        monkeypatch.setattr(
            ruleset_readers, "get_netlink_sockets", lambda _: Request(SOCK_DIAG_BY_FAMILY, 0, bytes(32))
        )
    return sockets


def netfilter_sockets_here() -> set[int]:
    """Returns their inodes, from the last column of the kernel's list; the second one is the protocol."""
    rows = [line.split() for line in Path("/proc/thread-self/net/netlink").read_text().splitlines()]
    return {int(row[-1]) for row in rows if row[1] == str(NETLINK_NETFILTER)}


@contextmanager
def churn(
    kernel: Any, agent: Agent, service: MakeService, a_second: float, sockets: Callable[[], Sockets]
) -> Iterator[list[float]]:
    """Endpoints change so often, as the engine lets them. Yields by how many seconds each change came late."""
    ended = threading.Event()
    late: list[float] = []

    async def change() -> None:
        window, number = ReaderWindow(sockets), 0
        while not ended.is_set():
            await asyncio.sleep(1 / a_second)
            due = time.monotonic()
            await window.wait()
            number += 1
            # Of each Service an endpoint goes in one round, and comes in the next.
            gone = (number + number // SERVICES) % 2
            changed = state(service, number % SERVICES, ENDPOINTS - gone)
            with suppress(Retryable):  # what failed for lack of memory is done with the next change
                await agent.driver.sync({changed.key: changed}, NODE)
            window.committed()
            late.append(time.monotonic() - due)

    thread = threading.Thread(target=lambda: asyncio.run(change()))
    kernel.run(thread.start)
    try:
        yield late
    finally:
        ended.set()
        thread.join()
    assert late


def listing(kernel: Any, program: str) -> subprocess.Popen[bytes]:
    argv = [program, "list", "ruleset"]
    process: subprocess.Popen[bytes] = kernel.run(lambda: subprocess.Popen(argv, stdout=subprocess.DEVNULL))
    return process


PROGRAMS = ["nft", *([str(NFT_1_1)] if NFT_1_1.exists() else [])]


@pytest.mark.parametrize("a_second", [10, 20])
def test_others_list_the_ruleset_while_endpoints_churn(
    kernel: Any, service: MakeService, agent: Agent, sockets: NetfilterSockets, a_second: int
) -> None:
    with churn(kernel, agent, service, a_second, sockets.present) as late:
        for program in PROGRAMS * (3 if AT_LENGTH else 1):
            with listing(kernel, program) as process:
                try:
                    assert process.wait(WITHIN) == 0
                finally:
                    process.kill()
    late.sort()
    assert late[len(late) // 2] < 1, "half of the changes wait for nobody"


@pytest.mark.parametrize("a_second", [10, 20])
def test_a_check_ends_while_endpoints_churn_and_finds_nothing_wrong(
    kernel: Any, service: MakeService, agent: Agent, sockets: NetfilterSockets, a_second: int
) -> None:
    """It reads by itself and by libnftables, and compares."""
    argv = [sys.executable, "-m", "nodeagent", "check", "-o", "json"]
    with churn(kernel, agent, service, a_second, sockets.present):
        checking = kernel.run(lambda: subprocess.Popen(argv, stdout=subprocess.PIPE))
        with checking as process:
            try:
                reported, _ = process.communicate(timeout=WITHIN)
            finally:
                process.kill()
    found = {each["check"]: each["detail"] for each in json.loads(reported)["checks"]}
    assert "nft reads the same" in found["IPv4 table"], found


@pytest.mark.parametrize("a_second", [10, 50])
def test_commits_do_not_wait_for_the_process_that_follows_connections(
    kernel: Any, service: MakeService, agent: Agent, sockets: NetfilterSockets, a_second: int
) -> None:
    """It ends even so. The control: who does not know the process sees that it dumps, sooner or later: a dump is short."""
    follower = ConnectionFollower()
    without_it = NetfilterSockets(lambda: follower.processes)
    seen, unseen = set[bool](), set[bool]()

    async def follow() -> FollowedSample:
        for _ in range(FOLLOWED_TIMES):
            following = asyncio.create_task(follower.follow(["default/s1", "default/s2"]))
            while not following.done():
                seen.add(any(sockets.present().values()))
                unseen.add(any(without_it.present().values()))
                await asyncio.sleep(0.001)
            if True in seen:
                break
        return await following

    kernel.run(lambda: subprocess.run(["ip", "address", "add", "192.168.0.2/32", "dev", "lo"], check=True))
    with closing(without_it), churn(kernel, agent, service, a_second, dict):
        found = kernel.run(lambda: asyncio.run(follow()))
    assert (found.problems, found.unread) == ((), "")
    assert True in seen
    assert unseen == {False}


def test_a_socket_that_is_closed_while_its_owner_is_looked_for_is_nobodys(
    kernel: Any, agent: Agent, either_way: NetfilterSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of the agent may end between the list of sockets and the list of its own. The control: one that stays is somebody's."""
    elements = ruleset_request(NFT_MSG_GETSETELEM, NFPROTO_IPV4, named_set(schema.TABLE, schema.BACKENDS))

    def dumping_now(*, ends: bool) -> list[bool]:
        with closing(NetlinkSocket(NETLINK_NETFILTER)) as reader:
            datagrams = reader.dump_datagrams(elements)
            next(datagrams)

            def look_for_own(*_: object) -> frozenset[int]:
                if ends:
                    reader.close()
                return frozenset()

            monkeypatch.setattr(ruleset_readers, "_sockets_of", look_for_own)
            return [dumps for dumps in either_way.present().values() if dumps]

    assert kernel.run(lambda: dumping_now(ends=False)) == [True]
    assert kernel.run(lambda: dumping_now(ends=True)) == []


def test_connections_are_followed_without_a_socket_for_which_a_commit_waits(
    kernel: Any,
    agent: Agent,
    sockets: NetfilterSockets,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A commit waits for a reader of the rules until that one closes its socket. Reading routes takes longer than reading rules."""
    seen: dict[str, set[int]] = {}

    class WatchedRoutes(KernelRoutes):
        def addresses_at_interfaces(self) -> Mapping[str, frozenset[str]]:
            seen.setdefault("addresses", set()).add(len(sockets.present()))
            return super().addresses_at_interfaces()

        def route(self, leg: Leg) -> Route:
            seen.setdefault("route", set()).add(len(sockets.present()))
            return super().route(leg)

    monkeypatch.setattr(follow_sample, "KernelRoutes", WatchedRoutes)
    monkeypatch.setattr(sys, "argv", ["", "default/s1", "default/s2"])
    kernel.run(lambda: subprocess.run(["ip", "address", "add", "192.168.0.2/32", "dev", "lo"], check=True))
    before = len(kernel.run(sockets.present))
    kernel.run(follow_sample.main)
    assert json.loads(capsys.readouterr().out)["unread"] == ""
    assert seen == {"addresses": {before}, "route": {before}}


def test_without_a_wait_a_listing_would_not_end(kernel: Any, service: MakeService, agent: Agent) -> None:
    """The control. A fast machine lists everything between two of 50 changes a second."""
    with churn(kernel, agent, service, 200, dict), listing(kernel, "nft") as process:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(NEVER)
        finally:
            process.kill()


def test_dumps_of_others_are_seen_and_own_ones_are_not(kernel: Any, agent: Agent, either_way: NetfilterSockets) -> None:
    dumping: set[int] = set()
    assert not any(kernel.run(either_way.present).values())
    assert kernel.run(either_way.present).keys() == kernel.run(netfilter_sockets_here) != set()
    with listing(kernel, "nft") as process:
        while process.poll() is None:
            dumping |= {name for name, reads in kernel.run(either_way.present).items() if reads}
        assert process.returncode == 0
    assert len(dumping) == 1

    reading = threading.Thread(target=kernel.contents)
    reading.start()
    while reading.is_alive():
        assert not any(kernel.run(either_way.present).values())
