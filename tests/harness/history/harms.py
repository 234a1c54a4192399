"""What is done to an etcd under a workload, and put right again."""

import asyncio
import random

from tests.harness.etcd import EtcdCluster
from tests.harness.history.records import Fault
from tests.harness.history.witness import Witness, compact_behind

HOW = ("killed", "frozen", "cut off", "cut off from the others")


async def harm_leader(cluster: EtcdCluster, how: str, chance: random.Random) -> Fault:
    """Long enough for another to be elected, most times."""
    leader = await asyncio.to_thread(cluster.leader)
    begun = asyncio.get_running_loop().time()
    match how:
        case "frozen":
            leader.freeze()
            await asyncio.sleep(1 + 2 * chance.random())
            leader.thaw()
        case "killed":
            await asyncio.to_thread(leader.kill)
            await asyncio.sleep(2 * chance.random())
            leader.start()
        case _:
            host = cluster.host_of(leader)
            host.cut(peers_only=how != "cut off")
            await asyncio.sleep(1 + 4 * chance.random())
            host.heal()
    return Fault(f"leader of etcd {how}", begun, asyncio.get_running_loop().time())


async def forget(cluster: EtcdCluster, heard: Witness, chance: random.Random) -> Fault:
    """History up to what the witness has heard is compacted."""
    begun = asyncio.get_running_loop().time()
    revision = await asyncio.to_thread(compact_behind, cluster, [heard])
    return Fault(f"compacted at {revision}", begun, asyncio.get_running_loop().time())
