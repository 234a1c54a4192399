"""All members of etcd are replaced, one by one, under clients of three servers: what they saw is what was kept. Only at length."""

import asyncio
import os
import random
from functools import partial
from pathlib import Path

from tests.contract.apiserver.test_history import ENOUGH, FOR_EVER, judge, until
from tests.harness.api_processes import keep_running, running
from tests.harness.etcd import EtcdCluster, needs_etcd
from tests.harness.etcd import running as etcd
from tests.harness.history.records import Fault, History
from tests.harness.history.rules import disagreements
from tests.harness.history.witness import witness
from tests.harness.history.workload import NAMESPACE, Harm, Plan, play
from tests.harness.warm_start import WarmLauncher

SEED = int(os.environ.get("SEED") or "0") or random.SystemRandom().randrange(1, 10**6)
SECONDS = 60.0
Place = tuple[str, str]


async def is_replaced(cluster: EtcdCluster, chance: random.Random) -> Fault:
    """A member loses its disk, and comes back at its address with nothing."""
    begun = asyncio.get_running_loop().time()
    member = chance.choice(cluster.members)
    member.kill()
    place = await asyncio.to_thread(cluster.leave, member)
    await asyncio.to_thread(cluster.join, place)
    await asyncio.to_thread(cluster.is_well)
    return Fault("member replaced", begun, asyncio.get_running_loop().time())


async def moves(cluster: EtcdCluster, spare: list[Place], chance: random.Random) -> Fault:
    """One more member at an address that is free, and the one that has been there longest leaves its own."""
    del chance
    begun = asyncio.get_running_loop().time()
    await asyncio.to_thread(cluster.join, spare.pop(0))
    await asyncio.to_thread(cluster.is_well)
    spare.append(await asyncio.to_thread(cluster.leave, cluster.members[0]))
    return Fault("member moved", begun, asyncio.get_running_loop().time())


@needs_etcd
def test_clients_saw_the_history_of_etcd_while_members_were_replaced(
    tmp_path: Path, warm_launcher: WarmLauncher
) -> None:
    with etcd(tmp_path / "etcd", 3) as cluster, witness(cluster, NAMESPACE) as heard:
        spare = [cluster.spare()]
        urls = ",".join([cluster.urls, *(client for _, client in spare)])
        options = (*FOR_EVER, "--storage", "etcd", "--etcd-servers", urls)
        with running(tmp_path, 3, *options, launcher=warm_launcher) as servers:
            harms: list[Harm] = [partial(moves, cluster, spare), partial(is_replaced, cluster)]

            async def played() -> None:
                keeper = asyncio.create_task(keep_running(servers))
                try:
                    found.update(await play(Plan(SEED, SECONDS, enough=ENOUGH), servers, harms))
                finally:
                    keeper.cancel()

            found: dict[str, History] = {}
            asyncio.run(played())
            heard.finish()
            until(lambda: len(cluster.states()) == 1, "the members of etcd do not agree")
    wrong = list(disagreements(heard.holdings))
    assert not wrong, "\n".join([f"SEED={SEED} {len(wrong)} disagreements", *wrong[:20]])
    for collection, history in found.items():
        history.facts = heard.facts[collection]
    judge(found)
