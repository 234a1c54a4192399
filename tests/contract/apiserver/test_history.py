"""Eight clients write, patch, delete, list and watch while servers are killed; what they saw must be what was kept.

`make history` goes on for minutes. SEED=N repeats a schedule.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from nodeagent.kube.kubeconfig import load_kubeconfig
from tests.harness.effort import EFFORT
from tests.harness.etcd import EtcdCluster, needs_etcd
from tests.harness.etcd import running as etcd
from tests.harness.history.records import Fault, History
from tests.harness.history.rules import violations
from tests.harness.history.truth import kept_in_etcd, kept_in_sqlite
from tests.harness.history.workload import COLLECTIONS, NAMESPACE, Harm, Plan, play

COMMAND = [sys.executable, "-c", "from nodeagent.cli.apiserver import apiserver_command; apiserver_command()"]
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
SECONDS = 4.0 * EFFORT
ENOUGH = 3
"""Writes that succeed before and after each fault, or the run shows nothing."""


class Process:
    """An API server, at another port each time it is started."""

    def __init__(self, place: Path, name: str, *options: str) -> None:
        self.name = name
        self.incarnation = -1
        self._kubeconfig = place / f"kubeconfig-{name}"
        self._log = place / f"{name}.log"
        self._options = ["--insecure", "--history", "86400", "--kubeconfig-out", str(self._kubeconfig), *options]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str | None:
        return load_kubeconfig(self._kubeconfig).server if self._kubeconfig.exists() else None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*COMMAND, "--listen", "127.0.0.1:0", *self._options], stderr=log)
        self.incarnation += 1

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        self._process.send_signal(number)

    def kill(self) -> None:
        self._kubeconfig.unlink(missing_ok=True)
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def is_killed(self, chance: random.Random) -> Fault:
        """Killed, and started again after a moment."""
        begun = asyncio.get_running_loop().time()
        self.kill()
        await asyncio.sleep(0.3 * chance.random())
        self.start()
        async with asyncio.timeout(60):
            while self.url is None:  # noqa: ASYNC110  # a file has no event
                await asyncio.sleep(0.02)
        return Fault(f"{self.name} killed", begun, asyncio.get_running_loop().time())


@contextmanager
def running(place: Path, count: int, *options: str) -> Iterator[list[Process]]:
    servers: list[Process] = []
    try:
        for n in range(count):
            servers.append(Process(place, f"server-{n}", *options))
        yield servers
    finally:
        for server in servers:
            server.kill()


def judge(histories: dict[str, History], *, one_view: bool) -> None:
    for collection in COLLECTIONS:
        history = histories[collection]
        done = sum(write.done for write in history.writes)
        unknown = sum(write.status is None for write in history.writes)
        heard = sum(len(stream.events) for stream in history.streams)
        faults = ", ".join(fault.what for fault in history.faults)
        print(
            f"SEED={SEED} {collection}: {len(history.writes)} writes ({done} done, {unknown} unknown), "
            f"{len(history.reads)} reads, {heard} events in {len(history.streams)} streams; {faults}"
        )
        found = violations(history, one_view=one_view, enough=ENOUGH, longest_seconds=60.0)
        assert not found, "\n".join([f"SEED={SEED} {collection}: {len(found)} violations", *found[:20]])


def harms_of(servers: Sequence[Process]) -> list[Harm]:
    return [server.is_killed for server in servers]


@pytest.mark.parametrize(
    ("count", "one_view"),
    [
        pytest.param(1, True, id="one server"),
        # On a directory servers do not ask each other: what another acknowledged comes a moment later.
        pytest.param(2, False, id="two servers on a directory"),
    ],
)
def test_what_clients_saw_is_what_was_kept(tmp_path: Path, count: int, one_view: bool) -> None:
    data = tmp_path / "data"
    with running(tmp_path, count, "--data-dir", str(data)) as servers:
        histories = asyncio.run(play(Plan(SEED, SECONDS, enough=ENOUGH), servers, harms_of(servers)))
    facts = kept_in_sqlite(data / "store.db", NAMESPACE)
    for collection, history in histories.items():
        history.facts = facts[collection]
    judge(histories, one_view=one_view)


@needs_etcd
def test_what_clients_saw_at_three_servers_is_what_etcd_kept(tmp_path: Path) -> None:
    """API servers are killed, and the member of etcd that leads is killed and frozen."""
    (tmp_path / "data").mkdir()
    with etcd(tmp_path / "etcd", 3) as cluster:
        options = ["--data-dir", str(tmp_path / "data"), "--storage", "etcd", "--etcd-servers", cluster.urls]
        with running(tmp_path, 3, *options) as servers:
            harms: list[Harm] = [
                *harms_of(servers),
                partial(harm_leader, cluster, False),
                partial(harm_leader, cluster, True),
            ]
            histories = asyncio.run(play(Plan(SEED, SECONDS, enough=ENOUGH), servers, harms))
        facts = kept_in_etcd(cluster, NAMESPACE)
    for collection, history in histories.items():
        history.facts = facts[collection]
    judge(histories, one_view=True)


async def harm_leader(cluster: EtcdCluster, freeze: bool, chance: random.Random) -> Fault:
    """Long enough for another to be elected, most times."""
    leader = await asyncio.to_thread(cluster.leader)
    begun = asyncio.get_running_loop().time()
    if freeze:
        leader.freeze()
        await asyncio.sleep(1 + 2 * chance.random())
        leader.thaw()
    else:
        await asyncio.to_thread(leader.kill)
        await asyncio.sleep(2 * chance.random())
        leader.start()
    return Fault(f"leader of etcd {'frozen' if freeze else 'killed'}", begun, asyncio.get_running_loop().time())
