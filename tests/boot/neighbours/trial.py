"""A machine with another program and the agent, in one order of start, under connections that never stop; and what came of it."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from nodeagent.lab.net.actor_messages import Record
from nodeagent.lab.net.member import Holding, Loading
from nodeagent.lab.net.network_namespaces import DIRECTORY
from nodeagent.model.addresses import Family, Protocol
from tests.boot.container.conftest import AGENT, CONFIG, MANIFESTS, PACKAGES, ROOT, package
from tests.boot.container.machine import Machine
from tests.harness.cluster import NODE, TARGET_PORT, Cluster
from tests.harness.objects import service_port
from tests.harness.uninterrupted import PODS, SHOP
from tests.harness.worlds.topology import POD_CIDRS
from tests.harness.worlds.world import World

from .programs import Program

TREE = ROOT / ".tools" / "boot" / "neighbours"
NODE_PORT = 30080
IT_FIRST, WE_FIRST = "it first", "we first"
ORDERS = (IT_FIRST, WE_FIRST)
OWNERSHIPS = ("plain", "owned")
TIMEOUT = 3.0
LATE = 0.9
"""Seconds. An answer as late as this had its first packet lost: a kernel sends it again after one second."""
SETTLED = 1.2
FLOW = 20
WORKERS = 10
"""Of each client: one that waits for a lost packet does not keep the others from connecting."""
COUNTERS = re.compile(r" *\[[0-9:]+\]")
OF_LINKS = re.compile(r"\bfe80:|veth|ff00::/8")
OURS = re.compile(r"\bnodeagent0\b|\bproto 110\b")
TIMES = re.compile(r" *(expires|valid_lft|preferred_lft) \S+")
"""After each step: so many seconds, and so many connections more of each client."""


@dataclass(frozen=True)
class Access:
    """A client, and what it connects to."""

    client: str
    address: str
    port: int

    def __str__(self) -> str:
        place = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.client} → {place}:{self.port}"


@dataclass(frozen=True)
class Step:
    """Something that was done to the other program or to the agent. lost: new connections to the Service that failed, or whose first packet
    was lost; seconds: from the first of them to the end of the last; direct: the same of connections to a pod, without the Service;
    until: seconds from the beginning of the step to that of the last lost connection.
    """

    what: str
    attempts: int
    lost: int
    seconds: float
    direct: int
    until: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Of one setting. held: connections open from the beginning that did not answer any more; changed: what of the other's rules, addresses
    and routes was different after something that was done to the agent; left: what of ours the removal left; verdict: `explain` in the end.
    """

    steps: tuple[Step, ...]
    held: int
    changed: tuple[str, ...]
    left: tuple[str, ...]
    verdict: str

    @property
    def lost(self) -> int:
        return sum(step.lost for step in self.steps)

    @property
    def attempts(self) -> int:
        return sum(step.attempts for step in self.steps)


@dataclass(frozen=True)
class Stopped:
    """A way that the other program closes as it is installed, and what the agent says of it."""

    way: str
    verdict: str


class Trial:
    """One machine. Raises MachineFailed, LabError."""

    def __init__(self, program: Program, machine: Machine, cluster: Cluster) -> None:
        self.program = program
        self.machine = machine
        self.world = cluster.world
        node = self.world[NODE]
        self.ways = [
            *(Access("caller", address, 80) for address in SHOP),
            *(Access("outside", node.address(family), NODE_PORT) for family in Family),
            Access(NODE, SHOP[0], 80),
        ]

    def direct(self) -> list[Access]:
        """Ways to pods without the Service, as far as they are open: what the other program itself does to connections."""
        addresses = self.world[PODS[0]].addresses
        ways = [Access(client, address, TARGET_PORT) for client in ("caller", "outside") for address in addresses]
        return [way for way in ways if not self.world[way.client].ask(way.address, way.port, timeout=1.0).failures]

    def shell(self, command: str, *, check: bool = True) -> str:
        return self.machine.run("env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", command, check=check).stdout

    def prepare(self, *, cured: bool) -> None:
        for path, text in self.program.files.items():
            self.machine.write(path, text)
        self.shell(self.program.prepare or "true")
        if cured:
            self.shell(self.program.cure or "true")

    def install(self, ownership: str) -> None:
        """The package, configured and started."""
        self.machine.run("dpkg", "--install", f"/packages/{package(1).name}")
        cidrs = "".join(f"\n  - {cidr}" for cidr in POD_CIDRS)
        self.machine.write(
            CONFIG,
            f"apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\nsource:\n  manifests: {MANIFESTS}\n"
            f"node:\n  name: {NODE}\ntraffic:\n  clusterCIDRs:{cidrs}\ndataplane:\n  tableOwnership: {ownership}\n",
        )
        self.machine.systemctl("start", AGENT)

    def closed(self) -> list[Stopped]:
        """The ways that do not work now, each with the first line of `trace`."""
        found = []
        for way in self.ways:
            if self.world[way.client].ask(way.address, way.port, timeout=TIMEOUT).failures:
                source = self.world[way.client].address(Family.IPV6 if ":" in way.address else Family.IPV4)
                place = f"[{way.address}]" if ":" in way.address else way.address
                uplink = ["--from", "eth0"] if way.client == "outside" else []
                reported = self.machine.run("nodeagent", "trace", source, f"{place}:{way.port}", *uplink, check=False)
                found.append(Stopped(str(way), (reported.stdout or reported.stderr).partition("\n")[0]))
        return found

    def state(self) -> list[str]:
        """What is not ours of rules, addresses, routes and rules of routing, a line each, without counters and handles."""
        listed = json.loads(self.shell("nft -j list ruleset"))["nftables"]
        lines = [f"nft {text}" for entry in listed if (text := _rule(entry))]
        for tool in ("iptables", "ip6tables"):
            saved = self.shell(f"{tool}-legacy-save").splitlines()
            lines += [f"{tool} {COUNTERS.sub('', line)}" for line in saved if not line.startswith("#")]
        for what in ("-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all", "-o address"):
            for line in self.shell(f"ip {what}").splitlines():
                if not OURS.search(line) and not OF_LINKS.search(line):
                    lines.append(f"ip {what}: {TIMES.sub('', line).strip()}")
        return sorted(lines)

    def remnants(self) -> list[str]:
        """What of ours is there after the package was purged."""
        found = [line for line in self.shell("nft list tables").splitlines() if "nodeagent" in line]
        for command in ("ip -o link", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all"):
            found += [line for line in self.shell(command).splitlines() if "nodeagent" in line]
        found += self.shell("pgrep --full '[n]odeagent'", check=False).splitlines()
        return found + self.shell("ls -d /run/nodeagent* /var/lib/nodeagent* 2>/dev/null", check=False).splitlines()


def _rule(entry: dict[str, object]) -> str:
    """An object of `nft -j`, or nothing where it is ours or says nothing of rules."""
    ((kind, value),) = entry.items()
    assert isinstance(value, dict)
    if kind == "metainfo" or str(value.get("table", value.get("name"))).startswith("nodeagent"):
        return ""
    value = {key: part for key, part in value.items() if key != "handle"}
    return kind + re.sub(r'"(packets|bytes)": [0-9]+', r'"\1"', json.dumps(value, sort_keys=True))


@contextmanager
def trial(program: Program, place: Path) -> Iterator[Trial]:
    """A machine in a world whose Service `shop` has three pods and a node port. place: an empty directory, for its files."""
    with ExitStack() as stack:
        world = stack.enter_context(World())
        manifests, files = place / "manifests", place / "machine"
        for directory in (manifests, files):
            directory.mkdir()
        place.chmod(0o755)
        manifests.chmod(0o755)
        cluster = Cluster(world, manifests)
        for pod in PODS:
            world[pod].serve(TARGET_PORT, Protocol.TCP)
        cluster.expose("shop", *SHOP, pods=PODS, ports=(service_port(80, name="http", node_port=NODE_PORT),))
        network = DIRECTORY / world.namespace(NODE)
        binds = {manifests: MANIFESTS, PACKAGES: "/packages"}
        yield Trial(program, stack.enter_context(Machine(TREE, files, network, binds=binds)), cluster)


def version_of(program: Program) -> str:
    """Of the program's package in the tree; empty without a package."""
    if not program.package:
        return ""
    beside = next(TREE.glob(f"beside/{program.package}_*"), None)
    if beside is not None:
        return beside.name.split("_")[1]
    asked = ["dpkg-query", f"--admindir={TREE}/var/lib/dpkg", "--show", "--showformat=${Version}", program.package]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout


def as_installed(program: Program, place: Path) -> tuple[list[Stopped], list[Stopped]]:
    """What the program closes as it is installed, and what after the cure."""
    with trial(program, place) as it:
        it.prepare(cured=False)
        it.shell(program.start)
        it.install("plain")
        before = it.closed()
        if program.cure:
            it.shell(program.cure)
            it.shell(program.reload)
        return before, it.closed() if before else []


def measure(program: Program, order: str, ownership: str, place: Path) -> Outcome:
    """Everything that is done to the program and to the agent, in turn, while clients connect."""
    with trial(program, place) as it, ExitStack() as stack:
        it.prepare(cured=True)
        changed: list[str] = []
        before: list[str] | None = None
        if order == IT_FIRST:
            it.shell(program.start)
            time.sleep(SETTLED)
            before = it.state()
        it.install(ownership)
        changed += changes("start", before, it.state())
        held = [stack.enter_context(it.world[way.client].hold(way.address, way.port, count=3)) for way in it.ways]
        loads = [_load(it.world, way) for way in (*it.ways, *it.direct())]
        begun = [("before", time.monotonic())]
        _flow(loads)
        verbs = ["reload", "restart", "stop", "start"]
        for verb in verbs if order == IT_FIRST else ["start", *verbs]:
            begun.append((verb, time.monotonic()))
            it.shell(getattr(program, verb))
            _flow(loads)
        lost_held = _silent(held)
        before = it.state()
        begun.append(("agent restart", time.monotonic()))
        it.machine.systemctl("restart", AGENT)
        _flow(loads)
        changed += changes("restart", before, it.state())
        verdict = it.machine.run("nodeagent", "explain", "shop", check=False).stdout.partition("\n")[0]
        lost_held = max(lost_held, _silent(held))
        records = [load.stop().records for load in loads]
        served, direct = records[: len(it.ways)], records[len(it.ways) :]
        steps = _steps(begun, list(chain.from_iterable(served)), list(chain.from_iterable(direct)))
        it.machine.run("dpkg", "--purge", "nodeagent")
        changed += changes("purge", before, it.state())
        if program.serves and not _answers(it, program.serves):
            changed.append("purge: its own port does not answer")
        return Outcome(steps, lost_held, tuple(changed), tuple(it.remnants()), verdict)


def changes(what: str, before: list[str] | None, after: list[str]) -> list[str]:
    """Lines that something that was done to the agent took away or brought; none where nobody looked before."""
    if before is None:
        return []
    gone, new = set(before) - set(after), set(after) - set(before)
    return [f"{what}: - {line}" for line in sorted(gone)] + [f"{what}: + {line}" for line in sorted(new)]


def _flow(loads: list[Loading]) -> None:
    """Let connections go on for a while; as many seconds as all of them take that wait."""
    time.sleep(SETTLED)
    before = [load.report().attempts for load in loads]
    deadline = time.monotonic() + FLOW * TIMEOUT
    for load, attempts in zip(loads, before, strict=True):
        while load.report().attempts < attempts + FLOW and time.monotonic() < deadline:
            time.sleep(0.02)


def _load(world: World, way: Access) -> Loading:
    interval = WORKERS * 0.03
    return world[way.client].load(
        way.address, way.port, interval=interval, workers=WORKERS, timeout=TIMEOUT, record=True
    )


def _silent(held: list[Holding]) -> int:
    return sum(holding.ask().failures.total() + (3 - len(holding.opened)) for holding in held)


def _answers(it: Trial, port: int) -> bool:
    url = f"http://{it.world[NODE].address()}:{port}/"
    return it.world.run("outside", ["curl", "--silent", "--max-time", "5", url], check=False).stdout == "published\n"


def _steps(begun: list[tuple[str, float]], served: list[Record], direct: list[Record]) -> tuple[Step, ...]:
    """Each connection belongs to the step during which it began."""
    found = []
    for (what, start), end in zip(begun, [*(after for _, after in begun[1:]), float("inf")], strict=True):
        here = [record for record in served if start <= record.started < end]
        lost = [record for record in here if _is_lost(record)]
        seconds = max(r.started + r.seconds for r in lost) - min(r.started for r in lost) if lost else 0.0
        without = sum(_is_lost(record) for record in direct if start <= record.started < end)
        until = max((r.started - start for r in lost), default=0.0)
        found.append(Step(what, len(here), len(lost), round(seconds, 2), without, round(until, 2)))
    return tuple(found)


def _is_lost(record: Record) -> bool:
    return record.failure is not None or record.seconds >= LATE
