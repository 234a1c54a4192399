"""Eight clients write, patch, delete, list and watch while servers are killed; what they saw must be what was kept.

`make history` goes on for minutes. SEED=N repeats a schedule.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import inside
from tests.harness.api_processes import Process, keep_running, running
from tests.harness.effort import EFFORT
from tests.harness.etcd import needs_etcd
from tests.harness.etcd import running as etcd
from tests.harness.etcd_hosts import Hosts, hosts
from tests.harness.history.harms import HOW, forget, harm_leader
from tests.harness.history.records import History
from tests.harness.history.rules import disagreements, violations
from tests.harness.history.truth import kept_in_sqlite
from tests.harness.history.witness import witness
from tests.harness.history.workload import COLLECTIONS, NAMESPACE, Harm, Plan, play
from tests.harness.warm_start import WarmLauncher

SEED = int(os.environ.get("SEED") or "0") or random.SystemRandom().randrange(1, 10**6)
SECONDS = 4.0 * EFFORT
FOR_EVER = ("--history", "86400")
ENOUGH = 3
"""Writes that succeed before and after each fault, or the run shows nothing."""


def judge(histories: dict[str, History]) -> None:
    for collection in COLLECTIONS:
        history = histories[collection]
        done = sum(write.done for write in history.writes)
        unknown = sum(write.status is None for write in history.writes)
        heard = sum(len(stream.events) for stream in history.streams)
        faults = ", ".join(fault.what for fault in history.faults)
        if history.increments:
            raised = sum(one.done for one in history.increments)
            doubtful = sum(one.status is None for one in history.increments)
            print(f"SEED={SEED} {len(history.increments)} increments ({raised} acknowledged, {doubtful} unknown)")
        print(
            f"SEED={SEED} {collection}: {len(history.writes)} writes ({done} done, {unknown} unknown), "
            f"{len(history.reads)} reads, {heard} events in {len(history.streams)} streams; {faults}"
        )
        found = violations(history, enough=ENOUGH, longest_seconds=60.0)
        assert not found, "\n".join([f"SEED={SEED} {collection}: {len(found)} violations", *found[:20]])


def harms_of(servers: Sequence[Process]) -> list[Harm]:
    return [server.is_killed for server in servers]


@pytest.mark.parametrize("count", [pytest.param(1, id="one server"), pytest.param(2, id="two servers on a directory")])
def test_clients_saw_the_stored_history(tmp_path: Path, count: int, warm_launcher: WarmLauncher) -> None:
    data = tmp_path / "data"
    with running(tmp_path, count, *FOR_EVER, "--data-dir", str(data), launcher=warm_launcher) as servers:
        histories = asyncio.run(play(Plan(SEED, SECONDS, enough=ENOUGH), servers, harms_of(servers)))
    facts = kept_in_sqlite(data / "store.db", NAMESPACE)
    for collection, history in histories.items():
        history.facts = facts[collection]
    judge(histories)


@pytest.mark.kernel
@needs_etcd
def test_clients_of_three_servers_saw_the_history_of_etcd(tmp_path: Path, warm_launcher: WarmLauncher) -> None:
    """API servers are killed and frozen; the member of etcd that leads is killed, frozen and cut off; history is compacted."""
    with hosts(3) as network:
        inside(network.clients, partial(at_three_servers, tmp_path, network, warm_launcher))


def at_three_servers(place: Path, network: Hosts, launcher: WarmLauncher) -> None:
    options = (*FOR_EVER, "--storage", "etcd", "--etcd-servers")
    with (
        etcd(place / "etcd", 3, hosts=network.members) as cluster,
        witness(cluster, NAMESPACE) as heard,
        running(place, 3, *options, cluster.urls, launcher=launcher) as servers,
    ):
        harms: list[Harm] = [
            *harms_of(servers),
            *(server.is_frozen for server in servers[:1]),
            *(partial(harm_leader, cluster, how) for how in HOW),
            partial(forget, cluster, heard),
        ]
        histories = asyncio.run(played(servers, harms))
        heard.finish()
        until(lambda: len(cluster.states()) == 1, "the members of etcd do not agree")
    wrong = list(disagreements(heard.holdings))
    assert not wrong, "\n".join([f"SEED={SEED} {len(wrong)} disagreements", *wrong[:20]])
    for collection, history in histories.items():
        history.facts = heard.facts[collection]
    judge(histories)


async def played(servers: Sequence[Process], harms: Sequence[Harm]) -> dict[str, History]:
    keeper = asyncio.create_task(keep_running(servers))
    try:
        return await play(Plan(SEED, SECONDS, enough=ENOUGH), servers, harms)
    finally:
        keeper.cancel()


def until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.1)
