"""A member of etcd that is slow, or stands still, holds up the servers that speak to it, and none that speaks to another."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

import pytest

from nodeagent.apiserver.storages import EtcdSettings
from tests.contract.apiserver.conftest import Api, ServerThread
from tests.harness.etcd import Member, needs_etcd, running
from tests.harness.stopwatch import once_within

pytestmark = needs_etcd
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
WRITES = 40
MOST_TIMES_AS_LONG = 10
"""A write that waits for the slow member, or until it is given up, takes a hundred times as long."""
DEADLINE_SECONDS = 90.0
Hindrance = Callable[[Member, threading.Event], None]


def stands_still(member: Member, over: threading.Event) -> None:
    member.freeze()
    over.wait()


def is_slow(member: Member, over: threading.Event) -> None:
    """It runs a twentieth of the time."""
    while not over.is_set():
        member.freeze()
        over.wait(0.4)
        member.thaw()
        over.wait(0.02)


def seconds_of_writes(api: Api, name: str) -> list[float]:
    found = []
    for number in range(WRITES):
        began = time.monotonic()
        assert api.call("POST", CONFIGMAPS, {"metadata": {"name": f"{name}-{number}"}}).status == 201
        assert api.call("GET", f"{CONFIGMAPS}/{name}-{number}").status == 200
        found.append(time.monotonic() - began)
    return found


@pytest.mark.parametrize("hindrance", [stands_still, is_slow])
def test_servers_at_other_members_keep_their_pace(tmp_path: Path, hindrance: Hindrance) -> None:
    over = threading.Event()
    written_slowly: list[int] = []

    def write_slowly(api: Api) -> None:
        number = 0
        while not over.is_set():
            number += 1
            if api.call("POST", CONFIGMAPS, {"metadata": {"name": f"slow-{number}"}}).status == 201:
                written_slowly.append(number)

    with ExitStack() as stack:
        cluster = stack.enter_context(running(tmp_path / "etcd", 3))
        leader = cluster.leader()
        places = dict(zip(cluster.members, cluster.endpoints, strict=True))
        slow, fast = (member for member in cluster.members if member is not leader)
        servers = {}
        for name, member in (("fast", fast), ("leader", leader), ("slow", slow)):
            settings = EtcdSettings(servers=(places[member],))
            servers[name] = Api(ServerThread(tmp_path / name, etcd=settings))
            stack.callback(servers[name].stop)
        stack.callback(slow.thaw)
        before = {name: median(seconds_of_writes(servers[name], f"{name}-before")) for name in ("fast", "leader")}
        hindering = threading.Thread(target=hindrance, args=(slow, over))
        writing = threading.Thread(target=write_slowly, args=(servers["slow"],))
        hindering.start()
        writing.start()
        attempts = count(1)

        def pace(name: str) -> float:
            return median(seconds_of_writes(servers[name], f"{name}-meanwhile-{next(attempts)}")) / before[name]

        try:
            for name in before:
                once_within(MOST_TIMES_AS_LONG, partial(pace, name), f"times as long as before at {name}")
            slowly, quickly = len(written_slowly), WRITES * (next(attempts) - 1)
        finally:
            over.set()
            hindering.join()
            slow.thaw()
            writing.join()
        assert slowly < quickly / 2
        # What was slow comes back, and has missed nothing.
        ends = time.monotonic() + DEADLINE_SECONDS
        while servers["slow"].call("GET", f"{CONFIGMAPS}/fast-meanwhile-1-{WRITES - 1}").status != 200:
            assert time.monotonic() < ends
