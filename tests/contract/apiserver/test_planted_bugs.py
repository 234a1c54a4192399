"""A history is not passed by servers that read what is past, or overwrite what they have not seen. Only at length."""

import asyncio
import os
import random
from functools import partial
from pathlib import Path

import pytest

from tests.harness.api_processes import running
from tests.harness.etcd import needs_etcd
from tests.harness.etcd import running as etcd
from tests.harness.history.harms import harm_leader
from tests.harness.history.rules import violations
from tests.harness.history.witness import witness
from tests.harness.history.workload import NAMESPACE, Harm, Plan, play

SEED = int(os.environ.get("SEED") or "0") or random.SystemRandom().randrange(1, 10**6)
SECONDS = 30.0

STALE_READS = """
from nodeagent.apiserver.storage.etcd.storage import EtcdStorage
async def latest(self):
    return self._counter
EtcdStorage.latest = latest
"""
LOST_UPDATES = """
from dataclasses import replace
from msgspec.structs import replace as altered
from nodeagent.apiserver.storage.etcd.transactions import Transaction
whole = Transaction.request
def request(self, lease=0):
    return whole(replace(self, changes=[altered(change, expected=None) for change in self.changes]), lease)
Transaction.request = request
"""

EQUAL_BYTES = """
from nodeagent.apiserver.storage.etcd.storage import EtcdStorage
from nodeagent.apiserver.storage.records import Precondition
whole = EtcdStorage._transact
async def transact(self, wanted, lease, ends):
    settled = await whole(self, wanted, lease, ends)
    for key, value in zip(wanted.keys, wanted.values):
        event = wanted.following.get(key)
        if isinstance(settled, Precondition) and event is not None and event.kv.value == value:
            return event.kv.mod_revision
    return settled
EtcdStorage._transact = transact
"""


@needs_etcd
@pytest.mark.parametrize(
    ("planted", "found"),
    [
        pytest.param(STALE_READS, ": stale", id="reads from memory"),
        pytest.param(LOST_UPDATES, ": a lost update", id="writes that compare nothing"),
        pytest.param(EQUAL_BYTES, "increments were acknowledged", id="equal bytes taken for its own"),
    ],
)
def test_planted_bugs_in_servers_are_found(tmp_path: Path, planted: str, found: str) -> None:
    with (
        etcd(tmp_path / "etcd", 3) as cluster,
        witness(cluster, NAMESPACE) as heard,
        running(tmp_path, 3, "--storage", "etcd", "--etcd-servers", cluster.urls, planted=planted) as servers,
    ):
        harms: list[Harm] = [partial(harm_leader, cluster, "frozen")]
        histories = asyncio.run(play(Plan(SEED, SECONDS, objects=2), servers, harms))
        heard.finish()
    for collection, history in histories.items():
        history.facts = heard.facts[collection]
    reported = [line for history in histories.values() for line in violations(history)]
    print(f"SEED={SEED} {len(reported)} violations, such as {reported[:2]}")
    assert any(found in line for line in reported)
