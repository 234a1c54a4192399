"""Of chains with one priority that of the newest table is asked first, by the kernel and by a trace."""

import json

import pytest

from nodeagent.model.addresses import Family, endpoint_text
from tests.harness.cluster import NODE, TARGET_PORT, Cluster
from tests.harness.warm_start import AGENT

pytestmark = pytest.mark.kernel

PODS = ("web-0", "web-1", "web-2")
PORT = 8181


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    for pod in PODS:
        cluster.world[pod].serve(TARGET_PORT)
    return cluster


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("kind", ["ip", "inet"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_newest_chain_of_a_priority_wins(
    served: Cluster, family: Family, kind: str, order: tuple[int, int, int]
) -> None:
    world = served.world
    word = "ip" if family is Family.IPV4 else "ip6"
    tables = {0: f"{word} zero", 1: f"{kind if kind == 'inet' else word} one", 2: f"{word} two"}
    for number in order:
        place = endpoint_text(world[PODS[number]].address(family), TARGET_PORT)
        chain = (
            f"chain c{number} {{ type nat hook prerouting priority -100; tcp dport {PORT} dnat {word} to {place}; }}"
        )
        world.nft(NODE, f"table {tables[number]} {{ {chain}; }}")
    try:
        source, address = world["caller"].address(family), world[NODE].address(family)
        done = world.run(NODE, [*AGENT, "trace", source, endpoint_text(address, PORT), "-o", "json"])
        (outcome,) = json.loads(done.stdout)["outcomes"]
        answer = world["caller"].ask(address, PORT).only
        assert answer.failure is None, answer
        assert outcome["destination"] == endpoint_text(answer.local, answer.local_port)
    finally:
        for table in dict.fromkeys(tables.values()):
            world.nft(NODE, f"delete table {table}")
