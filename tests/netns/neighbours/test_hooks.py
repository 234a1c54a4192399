"""The table of hooks in docs/neighbours.md is what a kernel has when everybody is there; and why ours are where they are."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, TARGET_PORT, Cluster, cluster_ips
from tests.harness.nft import Nft
from tests.harness.worlds.world import World

from .scene import AGENT_FIRST, SHOP, Neighbour, Scene, Setting, place

DOCUMENT = Path(__file__).parents[3] / "docs" / "neighbours.md"
EVERYBODY = {
    "cni_hostport": ("portmap", Neighbour("portmap.nft")),
    "docker-bridges": ("Docker", Neighbour("docker.nft")),
    "flannel-ipv4": ("flannel", Neighbour("flannel.nft")),
    "kube-proxy": ("kube-proxy", Neighbour("kube-proxy.nft")),
    "firewalld": ("firewalld", Neighbour("firewalld.nft")),
    "nat": ("iptables nat", Neighbour("portmap.iptables", "iptables-nft")),
    "filter": ("iptables filter", Neighbour("ufw.iptables", "iptables-nft")),
}
"""Who has the table of that name, as the document calls them."""
HOOKS = ("prerouting", "input", "forward", "output", "postrouting")


class BaseChain(NamedTuple):
    """A base chain as the kernel has it."""

    hook: str
    priority: int
    kind: str
    owner: str


def base_chains(world: World) -> list[BaseChain]:
    """Every base chain that sees IPv4 on the node, in the order in which packets of a hook meet them."""
    names = {"nodeagent": "**nodeagent**"} | {table: name for table, (name, _) in EVERYBODY.items()}
    found = {
        BaseChain(chain["hook"], chain["prio"], chain["type"], names[chain["table"]])
        for chain in Nft(world.namespace(NODE)).base_chains()
        if chain["family"] in ("ip", "inet")
    }
    return sorted(found, key=lambda chain: (HOOKS.index(chain.hook), chain.priority, chain.owner))


def as_rows(chains: list[BaseChain]) -> list[str]:
    """One row of a table for each hook and priority, chains of the same type there together."""
    places: dict[tuple[str, int, str], list[str]] = {}
    for chain in chains:
        places.setdefault((chain.hook, chain.priority, chain.kind), []).append(chain.owner)
    return [
        f"| {hook} | {priority} | {kind} | {', '.join(owners)} |" for (hook, priority, kind), owners in places.items()
    ]


def test_the_document_says_where_everybody_is(build_world: Callable[[], World], tmp_path: Path) -> None:
    """A Service has affinity; without one the chains at -99 are not there."""
    scene = Scene(Cluster(build_world(), tmp_path))
    scene.serve()
    scene.cluster.expose("sticky", *cluster_ips(30), pods=("web-0",), spec=ServiceSpec(session_affinity="ClientIP"))
    *others, (_, last) = EVERYBODY.values()
    for _, neighbour in others:
        neighbour.install(scene.world)
    scene.begin(Setting(last, AGENT_FIRST))

    rows = as_rows(base_chains(scene.world))

    print("\n".join(rows))
    assert [
        line for line in DOCUMENT.read_text().splitlines() if line.startswith(tuple(f"| {hook}" for hook in HOOKS))
    ] == rows


def rule_at(priority: int, endpoint: str) -> str:
    """A rule in our place that leads the ClusterIP to an endpoint."""
    return f"""
table ip ours-at {{
  chain prerouting {{
    type nat hook prerouting priority {priority}
    ip daddr {SHOP[0]} tcp dport 443 dnat to {endpoint}
  }}
}}
"""


@pytest.mark.parametrize(
    ("priority", "earlier", "later"),
    [
        pytest.param(-105, "web-0", "web-0", id="before dstnat: always ours"),
        pytest.param(-100, "web-2", "web-0", id="at dstnat: of the program that registered last"),
        pytest.param(-95, "web-2", "web-2", id="after dstnat: never ours"),
    ],
)
def test_which_of_two_translations_counts(
    build_world: Callable[[], World], tmp_path: Path, priority: int, earlier: str, later: str
) -> None:
    """A rule in our place at three priorities, registered before a hostPort's rules, then once more after them."""
    scene = Scene(Cluster(build_world(), tmp_path))
    scene.serve()
    scene.hold_addresses(*SHOP)
    rule = rule_at(priority, place(scene.world["web-0"].address(), TARGET_PORT))
    caller = scene.world["caller"]

    scene.world.nft(NODE, rule)
    Neighbour("portmap.iptables", "iptables-nft").install(scene.world)
    assert caller.ask(SHOP[0], 443).names == {earlier: 1}
    scene.world.nft(NODE, "delete table ip ours-at")
    scene.world.nft(NODE, rule)
    assert caller.ask(SHOP[0], 443).names == {later: 1}


LATE_TRANSLATION = """
table ip late {{
  chain translate {{
    type nat hook prerouting priority 900
    ip daddr {cluster_ip} tcp dport 443 dnat to {endpoint}
  }}
  chain look {{
    type filter hook prerouting priority {priority}
    tcp flags & (syn|ack) == syn ct status dnat counter
  }}
}}
"""


@pytest.mark.parametrize(("priority", "seen"), [(-101, 0), (-99, 1)])
def test_all_nat_chains_of_a_hook_are_called_from_one_place(
    build_world: Callable[[], World], tmp_path: Path, priority: int, seen: int
) -> None:
    """At -100 in prerouting, whatever their own priorities: a filter chain behind it sees what the last of them did."""
    scene = Scene(Cluster(build_world(), tmp_path))
    scene.serve()
    scene.hold_addresses(*SHOP)
    endpoint = place(scene.world["web-0"].address(), TARGET_PORT)
    scene.world.nft(NODE, LATE_TRANSLATION.format(cluster_ip=SHOP[0], endpoint=endpoint, priority=priority))

    assert scene.world["caller"].ask(SHOP[0], 443).names == {"web-0": 1}

    assert f"counter packets {seen} " in scene.world.nft(NODE, "list table ip late")
