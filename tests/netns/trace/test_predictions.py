"""What `nodeagent trace` says is what happens: random nodes with random rules of others, and real connections.

Each world has services, chains of other programs, routes that lead nowhere, and clients of every kind; pods with links of their
own, or behind a bridge whose packets meet the rules or do not. A trace is asked first, then the connection is opened.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import pytest

from nodeagent.lab.net.actor_messages import Answer, Failure
from nodeagent.lab.net.pod_wiring import BRIDGE_SETTINGS, hardware_address
from nodeagent.model.addresses import Family, Protocol, endpoint_text, family_of
from nodeagent.model.objects import Service, ServiceSpec, SessionAffinityConfig
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.effort import examples
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port
from tests.harness.warm_start import AGENT
from tests.harness.worlds.topology import SERVICE_CIDRS
from tests.harness.worlds.world import World
from tests.netns.wirings import both_kinds_of_pods

pytestmark = pytest.mark.kernel

PODS_HERE = ("web-0", "web-1", "web-2")
PODS = (*PODS_HERE, "far-0")
CLIENTS = ("caller", "web-0", NODE, "outside")
CONNECTIONS = 5
SILENCE_SECONDS = 0.4
"""How long nobody answers a connection that was dropped."""
PATIENCE_SECONDS = 60.0
"""For an answer that must come, on a machine that may be busy."""
BEYOND_THE_CHOSEN = 0x1000
"""The number of ClusterIPs that the node reaches by the route of their range, by IPv6 and where that is known."""
HOSTED_PORT, PUBLISHED_PORT, SERVICE_PORT = 8090, 8181, 80
RULES = sorted((Path(__file__).parent / "rules").iterdir())
"""What other programs may have on a node: `*.nft` for nft, `*.iptables` for iptables-nft-restore, `*.legacy` for
iptables-legacy-restore."""
LEGACY_TABLES = ("raw", "mangle", "nat", "filter")
FILTERED = 0.7
"""How many of the worlds with a bridge have br_netfilter show its packets to the rules."""
MARK = "0x7"
"""Rules mark some packets with it, and some worlds have a route for them."""

KINDS = {"a blackhole": "blackhole", "an unreachable route": "unreachable", "a prohibited route": "prohibit"}
STATES = (*((True, None, None),) * 6, (False, None, None), (False, True, True))
"""What endpoints may be: ready, serving, terminating."""
RUINS = (
    "nothing",
    "nothing",
    "nothing",
    "a blackhole",
    "an unreachable route",
    "a prohibited route",
    "no forwarding",
    "a route by mark",
)


pod_bridge = both_kinds_of_pods


class Scene:
    """One node of the world, rebuilt for each seed."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.world: World = cluster.world
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.family = self.chance.choice(list(Family))
        self.first = self.chance.choice([1, BEYOND_THE_CHOSEN])
        self.ranges = self.chance.choice([(), ("--service-cidr", ",".join(SERVICE_CIDRS))])
        self.services = [self._service(number) for number in range(1, 4)]
        self.rules = self.chance.sample(RULES, self.chance.choice([0, 1, 1, 2]))
        self.pod = self.world[self.chance.choice(PODS)].address(self.family)
        self.ruin = self.chance.choice(RUINS)
        self.bridge = self.world.topology.nodes[0].pod_bridge
        self.filtered = bool(self.bridge) and self.chance.random() < FILTERED
        self.one_way_port = self.chance.choice(["", "", *PODS_HERE]) if self.bridge else ""

    def _service(self, number: int) -> Service:
        chance = self.chance
        node_port = chance.choice([None, 30080 + number])
        ports = [
            service_port(SERVICE_PORT, name="http", node_port=node_port),
            service_port(SERVICE_PORT, Protocol.UDP, name="dns"),
            service_port(SERVICE_PORT, Protocol.SCTP, name="sig"),
        ]
        balancer = (f"198.51.100.{number}", f"2001:db8:100::{number}") if chance.random() < 0.5 else ()
        external_ips = (
            (f"198.51.100.{100 + number}", f"2001:db8:100::{100 + number}") if chance.random() < 0.3 else None
        )
        spec = ServiceSpec(
            external_ips=external_ips,
            external_traffic_policy=chance.choice(["Cluster", "Local"])
            if balancer or node_port or external_ips
            else None,
            internal_traffic_policy=chance.choice(["Cluster", "Cluster", "Local"]),
            session_affinity=chance.choice(["None", "ClientIP"]),
            session_affinity_config=SessionAffinityConfig(),
            load_balancer_source_ranges=chance.choice([None, None, ("10.244.0.0/16", "fd00:244::/32")]),
        )
        addresses = cluster_ips(self.first + number)
        return make_service(f"s{number}", *addresses, ports=ports, load_balancer_ips=balancer, spec=spec)

    def build(self) -> None:
        """Program it all."""
        for service in self.services:
            chosen = self.chance.sample([*PODS, NODE], self.chance.choice([0, 1, 2, 3]))
            self.cluster.manifests.put(service)
            for family in Family:
                endpoints = [self._endpoint(name, family) for name in chosen]
                self.cluster.manifests.put(make_slice(service, endpoints, family, target_port=TARGET_PORT))
        self.cluster.program_once(*WITH_POD_CIDRS, *self.ranges, "--conntrack-max-per-core", "0")
        for rules in self.rules:
            self._install(rules)
        if self.bridge:
            value = "1" if self.filtered else "0"
            self.world.write_sysctls(NODE, dict.fromkeys(BRIDGE_SETTINGS, value))
            self._hairpin("off")
        self._ruin()

    def _endpoint(self, name: str, family: Family) -> Any:
        home = NODE if name != "far-0" else "node-b"
        ready, serving, terminating = self.chance.choice(STATES)
        address = self.world[name].address(family)
        return make_endpoint(address, home, ready=ready, serving=serving, terminating=terminating)

    def _install(self, rules: Path) -> None:
        four = self.family is Family.IPV4
        text = Template(rules.read_text()).substitute(
            ip="ip" if four else "ip6",
            address_type="ipv4_addr" if four else "ipv6_addr",
            pod=self.pod,
            pod_port=endpoint_text(self.pod, TARGET_PORT),
            outside=self.world["outside"].address(self.family),
            caller=self.bridge or "caller",
            web=self.bridge or "web-0",
        )
        if rules.suffix == ".nft":
            self.world.nft(NODE, text)
        else:
            kind = "legacy" if rules.suffix == ".legacy" else "nft"
            program = f"iptables-{kind}-restore" if four else f"ip6tables-{kind}-restore"
            self.world.run(NODE, [program, "--noflush"], stdin=text)

    def _ruin(self) -> None:
        if self.ruin == "no forwarding":
            self._forward("0")
        elif self.ruin == "a route by mark":
            self._route("add", ["fwmark", MARK, "blackhole"])
        elif self.ruin != "nothing":
            self._route("add", ["to", self.pod, KINDS[self.ruin]])

    def _hairpin(self, mode: str) -> None:
        if self.one_way_port:
            self.world.run(NODE, ["bridge", "link", "set", "dev", self.one_way_port, "hairpin", mode])

    def _mend(self) -> None:
        self._hairpin("on")
        if self.ruin == "no forwarding":
            self._forward("1")
        elif self.ruin != "nothing":
            self._route("del", [])

    def _route(self, verb: str, rest: list[str]) -> None:
        option = "-4" if self.family is Family.IPV4 else "-6"
        self.world.run(NODE, ["ip", option, "rule", verb, "pref", "10", *rest])

    def _forward(self, value: str) -> None:
        name = "net/ipv4/ip_forward" if self.family is Family.IPV4 else "net/ipv6/conf/all/forwarding"
        self.world.write_sysctls(NODE, {name: value})

    def clear(self) -> None:
        """Undo what the next scene does not write over."""
        listed = self.world.run(NODE, ["nft", "list", "tables"]).stdout.split("\n")
        names = [line.removeprefix("table ") for line in listed if line and not line.endswith(" nodeagent")]
        self.world.nft(NODE, "".join(f"delete table {name}\n" for name in names))
        if any(rules.suffix == ".legacy" for rules in self.rules):
            program = "iptables-legacy" if self.family is Family.IPV4 else "ip6tables-legacy"
            empty = "; ".join(f"{program} -t {table} -F; {program} -t {table} -X" for table in LEGACY_TABLES)
            self.world.run(NODE, ["sh", "-ec", f"{empty}; {program} -P FORWARD ACCEPT"])
        self._mend()
        self.world.run(NODE, ["conntrack", "-F"])

    def questions(self) -> Iterator[tuple[str, str, int, Protocol]]:
        """(client, address, port, protocol), some of the many."""
        places: list[tuple[str, int, Protocol]] = []
        at_node = self.world[NODE].address(self.family)
        for service in self.services:
            status = service.status
            found = [*(service.spec.cluster_ips or ())]
            if status is not None and status.load_balancer is not None:
                found += [entry.ip for entry in status.load_balancer.ingress or () if entry.ip]
            found += service.spec.external_ips or ()
            for port in service.spec.ports or ():
                protocol = Protocol[port.protocol or "TCP"]
                places += [(one, port.port, protocol) for one in found if family_of(one) is self.family]
                if port.node_port:
                    places.append((at_node, port.node_port, protocol))
        places += [(at_node, HOSTED_PORT, Protocol.TCP), (at_node, PUBLISHED_PORT, Protocol.TCP)]
        places.append((cluster_ips(self.first + 1)[self.family is Family.IPV6], 81, Protocol.TCP))
        places += [(self.world[pod].address(self.family), TARGET_PORT, Protocol.TCP) for pod in PODS_HERE]
        for _ in range(6):
            client, place = self.chance.choice(CLIENTS), self.chance.choice(places)
            if self.world[client].address(self.family) != place[0] or client == NODE:
                yield (client, *place)


ENDS = {
    Failure.REFUSED: {"refused", "unreachable", "untranslated"},
    Failure.TIMEOUT: {"dropped", "unreachable", "untranslated", "one way"},
    Failure.DENIED: {"dropped", "refused", "unreachable"},
    Failure.UNREACHABLE: {"unreachable", "refused", "untranslated"},
    Failure.OTHER: {"unreachable", "refused", "untranslated"},
}
"""What a client sees of each end. An ICMP error reports that there is no way, which may find no way either; what
becomes of what is not translated is for others to say."""
SILENT = {"dropped", "unreachable", "untranslated", "one way"}


def asked(
    world: World, client: str, address: str, port: int, protocol: Protocol
) -> tuple[dict[str, Any], list[Answer]]:
    """What a trace says, and then what happens."""
    source = world[client].address(family_of(address))
    place = f"{endpoint_text(address, port)}/{protocol.name}"
    done = world.run(NODE, [*AGENT, "trace", source, "->", place, "-o", "json"], check=False)
    assert done.returncode in (0, 1), done.stderr
    traced = json.loads(done.stdout)
    assert next(iter(traced)) == "verdict"
    assert done.returncode == (0 if traced["arrives"] else 1)
    met = [met for outcome in traced["outcomes"] for met in (outcome, outcome["answer"] or {"decisions": []})]
    certain = all(step["evaluated"] for each in met for step in each["decisions"])
    assert certain, traced
    silent = any(outcome["end"] in SILENT or goes_unfollowed(outcome) for outcome in traced["outcomes"])
    timeout = SILENCE_SECONDS if silent else PATIENCE_SECONDS
    survey = world[client].ask(
        address, port, protocol, count=CONNECTIONS, timeout=timeout, source_address=source, workers=CONNECTIONS
    )
    return traced, list(survey)


def goes_unfollowed(outcome: dict[str, Any]) -> bool:
    """Whether nothing is said of the answer: the request goes on to another host as it was sent."""
    return outcome["end"] == "arrives" and not outcome["translated"] and outcome["route"] != "delivered here"


def check(world: World, traced: dict[str, Any], answers: list[Answer], source: str) -> None:
    """Every connection ended in one of the ways that were predicted."""
    outcomes = traced["outcomes"]
    ends = {outcome["end"] for outcome in outcomes}
    arrived = {
        outcome["destination"]: outcome["sourceRewritten"] for outcome in outcomes if outcome["end"] == "arrives"
    }
    for answer in answers:
        if answer.failure:
            assert ENDS[answer.failure] & ends or any(map(goes_unfollowed, outcomes)), (answer, traced)
            continue
        place = endpoint_text(answer.local, answer.local_port)
        assert place in arrived, (answer, traced)
        assert arrived[place] or answer.peer == source, (answer, traced)
        rewritten = arrived[place] and source not in world[NODE].addresses
        assert not rewritten or answer.peer != source, (answer, traced)


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    """Pods that answer on 8080, a server of the node on 8080 and 8090, and a kernel that rations no ICMP error.

    Tables of iptables-legacy are older than all of nft, as a trace takes them to be: nobody can ask when they were made.
    """
    for program in ("iptables-legacy", "ip6tables-legacy"):
        cluster.world.run(NODE, ["sh", "-ec", "; ".join(f"{program} -t {table} -S" for table in LEGACY_TABLES)])
    for protocol in Protocol:
        for name in (*PODS, NODE):
            cluster.world[name].serve(TARGET_PORT, protocol)
    cluster.world[NODE].serve(HOSTED_PORT)
    unthrottled = {
        "net/ipv4/icmp_ratelimit": "0",
        "net/ipv4/icmp_msgs_per_sec": "100000",
        "net/ipv6/icmp/ratelimit": "0",
    }
    for name in (NODE, *PODS):
        cluster.world.write_sysctls(name, unthrottled)
    introduce(cluster.world)
    return cluster


def introduce(world: World) -> None:
    """Pods behind a bridge know each other: what rules of others do to IPv6's neighbour discovery is not predicted. And their node
    knows them."""
    node = world.topology.nodes[0]
    for pod in node.pods if node.pod_bridge else ():
        for address in pod.addresses:
            world[NODE].ping(address)
        known = [
            f"neigh replace {address} lladdr {hardware_address(other)} dev eth0 nud permanent"
            for other in node.pods
            if other is not pod
            for address in other.addresses
        ]
        world.run(pod.name, ["ip", "-batch", "-"], stdin="\n".join(known))


@pytest.mark.parametrize("seed", range(examples(5)))
def test_every_connection_ends_as_trace_predicted(served: Cluster, seed: int) -> None:
    scene = Scene(served, seed)
    scene.build()
    try:
        for client, address, port, protocol in scene.questions():
            traced, answers = asked(scene.world, client, address, port, protocol)
            check(scene.world, traced, answers, scene.world[client].address(scene.family))
    finally:
        scene.clear()
