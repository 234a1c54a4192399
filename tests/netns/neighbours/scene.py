"""Scenes: the agent and somebody else's rules in one node, in both orders of start.

The neighbours are files in rules/, as the tools write them, with $names where family and world decide. `*.nft` goes to
nft, `*.iptables` to iptables-restore, nft or legacy.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from nodeagent.lab.net.prefixes import host_prefix
from nodeagent.model.addresses import Family, Protocol
from tests.harness.cluster import NODE, TARGET_PORT, UNTHROTTLED, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.links import Links
from tests.harness.objects import make_service, make_slices, service_port
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.topology import POD_CIDRS, SERVICE_CIDRS
from tests.harness.worlds.world import World

RULES = Path(__file__).parent / "rules"
SHOP, HOSTED, OTHER = cluster_ips(1), cluster_ips(2), cluster_ips(7)
SHOP_BY_CHANCE = cluster_ips(0x1234)
"""By IPv6 among those that the node reaches by the route of their range (docs/decisions/0084)."""
NODE_PORT, SHOP_NODE_PORT, UNSERVED = 8081, 30443, 4444
WITH_SERVICE_CIDRS = ("--service-cidr", ",".join(SERVICE_CIDRS))
NODE_POD_CIDRS = ("10.244.1.0/24", "fd00:244:1::/48")
AGENT_FIRST, NEIGHBOUR_FIRST, ALONE = "agent first", "neighbour first", "without the agent"


@cache
def fixed_names(family: Family) -> dict[str, str]:
    """What the names in the rules mean in every world."""
    number = list(Family).index(family)
    return {
        "family": family.value.lower(),
        "ip": ("ip", "ip6")[number],
        "bits": ("32", "128")[number],
        "address_type": ("ipv4_addr", "ipv6_addr")[number],
        "loopback": ("127.0.0.0/8", "::1")[number],
        "multicast": ("224.0.0.0/4", "ff00::/8")[number],
        "docker_cidr": ("172.17.0.0/16", "fd00:172:17::/64")[number],
        "cluster_ip": SHOP[number],
        "other_ip": OTHER[number],
        "service_cidr": SERVICE_CIDRS[number],
        "pod_cidr": POD_CIDRS[number],
        "node_pod_cidr": NODE_POD_CIDRS[number],
    }


def place(address: str, port: int) -> str:
    """`address:port` as rules spell it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@dataclass(frozen=True)
class Neighbour:
    """Somebody's rules: a file of rules/ (or one for each family, `name-IPv4.…`), and the tool that loads it."""

    file: str
    tool: str = "nft"

    def __str__(self) -> str:
        return Path(self.file).stem if self.tool == "nft" and self.file.endswith(".nft") else f"{self.file} {self.tool}"

    def text(self, world: World, family: Family) -> str:
        """The rules of one family."""
        path = RULES / self.file
        if not path.exists():
            path = path.with_stem(f"{path.stem}-{family.value}")
        pod, node = world["web-2"].address(family), world[NODE].address(family)
        return Template(path.read_text()).substitute(
            fixed_names(family), pod=pod, pod_port=place(pod, TARGET_PORT), node_port=place(node, NODE_PORT)
        )

    def install(self, world: World) -> None:
        """Load the rules of both families; a second time, they are added once more."""
        if self.tool == "nft":
            for text in {self.text(world, family): None for family in Family}:
                world.nft(NODE, text)
            return
        for family, program in zip(Family, ("iptables", "ip6tables"), strict=True):
            command = f"{program}{self.tool.removeprefix('iptables')}-restore"
            world.run(NODE, [command, "--noflush"], stdin=self.text(world, family))


@dataclass(frozen=True)
class Setting:
    """Who is there, who came first, and how our table is held."""

    neighbour: Neighbour
    first: str
    ownership: str = "plain"

    def __str__(self) -> str:
        return f"{self.neighbour}, {self.first}, {self.ownership}"


def settings(*neighbours: Neighbour) -> list[Setting]:
    """Every neighbour in both orders beside a plain table, and one that comes later beside an owned one."""
    return [
        *(Setting(neighbour, first) for neighbour in neighbours for first in (NEIGHBOUR_FIRST, AGENT_FIRST)),
        Setting(neighbours[0], AGENT_FIRST, "owned"),
    ]


def alone(*neighbours: Neighbour) -> list[Setting]:
    """Every neighbour without the agent, on a node that has the agent's addresses: for controls."""
    return [Setting(neighbour, ALONE) for neighbour in neighbours]


class Scene:
    """A world of its own, whose node-a has a neighbour and, mostly, the agent."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self._agent: AgentProcess | None = None

    @property
    def agent(self) -> AgentProcess:
        assert self._agent
        return self._agent

    def serve(self) -> None:
        """Pods that answer on port 8080, a daemon of the node on some ports of every address, and three Services.

        `shop` leads to `web-0` and `web-1`, as `shop-by-chance` does, `hosted` to a server of the node itself; the rules of neighbours lead to
        `web-2` or to that server. The node's kernel does not ration ICMP errors, so every refusal is seen.
        """
        self.world.write_sysctls(NODE, UNTHROTTLED)
        for protocol in (Protocol.TCP, Protocol.UDP):
            for pod in ("web-0", "web-1", "web-2", "far-0"):
                self.world[pod].serve(TARGET_PORT, protocol)
            for port in (80, 443, UNSERVED):
                self.world[NODE].serve(port, protocol, addresses=("0.0.0.0", "::"), name="daemon")
        self.world[NODE].serve(NODE_PORT)
        ports = (
            service_port(443, name="https", node_port=SHOP_NODE_PORT),
            service_port(443, Protocol.UDP, name="quic"),
        )
        self.cluster.expose("shop", *SHOP, pods=("web-0", "web-1"), ports=ports)
        self.cluster.expose(
            "shop-by-chance", *SHOP_BY_CHANCE, pods=("web-0", "web-1"), ports=(service_port(443, name="https"),)
        )
        hosted = make_service("hosted", *HOSTED, ports=(service_port(80, name="http"),))
        endpoints = make_slices(hosted, [(self.world[NODE].addresses, NODE)], target_port=NODE_PORT)
        self.cluster.manifests.put(*endpoints, hosted)

    def begin(self, setting: Setting) -> None:
        """Start who is in the setting, in its order."""
        if setting.first == ALONE:
            self.hold_addresses(*SHOP, *HOSTED)
        if setting.first != AGENT_FIRST:
            setting.neighbour.install(self.world)
        if setting.first != ALONE:
            self._agent = self.cluster.start_agent(
                *WITH_POD_CIDRS, *WITH_SERVICE_CIDRS, "--table-ownership", setting.ownership
            )
        if setting.first == AGENT_FIRST:
            setting.neighbour.install(self.world)

    def hold_addresses(self, *addresses: str) -> None:
        """Make addresses local to the node, as the agent's interface would: for nobody's source, and no sign of a range
        that is in use."""
        lines = ["link add held type bridge", "link set held up"]
        for address in addresses:
            kind = "nodad preferred_lft 0" if ":" in address else "scope host"
            lines.append(f"addr add {host_prefix(address)} dev held {kind}")
        self.world.run(NODE, ["ip", "-batch", "-"], stdin="\n".join(lines))

    def release_addresses(self) -> None:
        """Undo `hold_addresses`."""
        Links(self.world, NODE).remove("held")
