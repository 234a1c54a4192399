"""Faults of nodes and of the whole cluster: how each breaks something, how that is checked, and how it is repaired."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

from msgspec import Struct

from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.control_plane import answers
from nodeagent.lab.lab_objects import NAMESPACE
from nodeagent.lab.lab_plan import SERVICE, ZONE, caller_name
from nodeagent.lab.lab_thread import Work
from nodeagent.lab.net.bridge_wiring import BRIDGE
from nodeagent.lab.net.namespace_process import AgentProcess
from nodeagent.lab.net.network_namespaces import LabError, inside, run_ip
from nodeagent.lab.net.topology import UNDERLAY
from nodeagent.lab.resolver import Lookups, Resolver
from nodeagent.lab.slow_link import restore_lines

GRACE = 5
FIRST_LOOKUPS = 20
DROPS = "lab-drops"
PROGRAM = (sys.executable, "-m")
PING_TIMEOUT = 0.2
CONNTRACK_STATISTICS = Path("/proc/thread-self/net/stat/nf_conntrack")
LEAST_DROPS = 0.1
ALL_PERCENT = 100


class Broken(Struct, frozen=True):
    """Something that is broken now.

    look: returns a text that shows it is broken; raises LabError if it is not. repair: repairs it; may return a text
    about that.
    """

    look: Callable[[], str]
    repair: Callable[[], str | None]


Fault = Callable[["Site"], Broken | Coroutine[None, None, None] | None]
"""Breaks something at a site; blocks. Returns what is to be repaired, or what must still be awaited. Raises LabError."""


class Site:
    """The place of a fault: the node or control-plane host, the amount, and the results."""

    def __init__(self, cluster: LiveCluster, work: Work, node: str, amount: float) -> None:
        self.cluster = cluster
        self.work = work
        self.node = node
        self.amount = amount
        self.began = 0.0
        self.broken: Broken | None = None
        """What must be repaired; None for a fault that repairs itself."""
        self.seen: list[str | None] = []
        self.lost = 0
        """Failures other than connections, which must not happen."""

    @property
    def underlay(self) -> list[str]:
        """Options of `ip` for the namespace of the bridge."""
        return ["-n", self.cluster.world.namespace(UNDERLAY)]

    async def inject(self, fault: Fault) -> None:
        """Breaks something. What is broken is recorded, and later repaired, even if this wait is cancelled."""

        def carry_out() -> Coroutine[None, None, None] | None:
            found = fault(self)
            if not isinstance(found, Broken):
                return found
            self.broken = found
            return None

        if (rest := await self.work(carry_out)) is not None:
            await rest

    def ping(self, timeout: float) -> float | None:
        """Returns the seconds until the node answers the router; None if it does not."""
        address = self.cluster.nodes[self.node][1].addresses[0]
        answer = self.cluster.world[UNDERLAY].ping(address, timeout=timeout).only
        return None if answer.failure else answer.seconds


def cut(site: Site) -> Broken:
    """Sets the link of the node down."""

    def look() -> str:
        if site.ping(PING_TIMEOUT) is not None:
            raise LabError(f"{site.node} answered although its link was down")
        return f"{site.node} answered no ping"

    run_ip(site.underlay, [f"link set {site.node} down"])
    return Broken(look, lambda: run_ip(site.underlay, [f"link set {site.node} up"]))


def delay(site: Site) -> Broken:
    """Delays each frame to and from the node."""
    least = 2 * site.amount / 1000
    program = [*PROGRAM, "nodeagent.lab.slow_link", site.node, BRIDGE, str(site.amount)]

    def look() -> str:
        took = site.ping(least + 2.0)
        if took is None or took < least:
            raise LabError(f"a ping of {site.node} had to take {least * 1000:.0f} ms, but took {took} s")
        return f"a ping of {site.node} took {took * 1000:.0f} ms"

    def speed_up() -> None:
        if wire.stop() != 0:
            run_ip(site.underlay, restore_lines(site.node, BRIDGE))

    wire = site.cluster.start_until(UNDERLAY, program, "in place")
    site.began = time.monotonic()
    return Broken(look, speed_up)


def drop(site: Site) -> Broken:
    """Drops some of the packets to and from the node."""
    some = "" if site.amount >= ALL_PERCENT else f"numgen random mod 1000 < {round(site.amount * 10)} "
    commands = f"add table netdev {DROPS}\n" + "".join(
        f"add chain netdev {DROPS} {hook} {{ type filter hook {hook} device {site.node} priority 0; }}\n"
        f"add rule netdev {DROPS} {hook} counter\n"
        f"add rule netdev {DROPS} {hook} {some}counter drop\n"
        for hook in ("ingress", "egress")
    )

    def look() -> str:
        listed = site.cluster.world.run(UNDERLAY, ["nft", "-j", "list", "table", "netdev", DROPS]).stdout
        rules = [entry["rule"]["expr"] for entry in json.loads(listed)["nftables"] if "rule" in entry]
        counts = {True: 0, False: 0}
        for expressions in rules:
            dropping = any("drop" in one for one in expressions)
            counts[dropping] += sum(one["counter"]["packets"] for one in expressions if "counter" in one)
        if not counts[True]:
            raise LabError(f"none of the {counts[False]} packets to and from {site.node} was dropped")
        return f"{counts[True]} of {counts[False]} packets dropped"

    def let_pass() -> None:
        site.cluster.world.nft(UNDERLAY, f"delete table netdev {DROPS}")

    site.cluster.world.nft(UNDERLAY, commands)
    return Broken(look, let_pass)


def restart(site: Site) -> None:
    """Stops the agent (SIGTERM) and starts it again."""
    before = site.cluster.agents[site.node].pid
    took = site.cluster.restart_agent(site.node)
    site.seen.append(f"process {before} ended, {site.cluster.agents[site.node].pid} was ready after {took:.2f} s")


def kill(site: Site) -> Broken:
    """Kills the agent (SIGKILL), and starts it again later, as systemd would."""
    agent = site.cluster.agents[site.node]

    def start() -> str:
        took = site.cluster.restart_agent(site.node)
        return f"{agent.pid} was ready after {took:.2f} s"

    return kill_process(site, agent, start)


def kill_process(site: Site, process: AgentProcess, start: Callable[[], str]) -> Broken:
    """Kills a process (SIGKILL) until `start` starts it again; `start` returns how long that took, in words."""

    def look() -> str:
        if process.running:
            raise LabError(f"process {pid} of {site.node} was running although it was killed")
        return f"process {pid} was dead for {time.monotonic() - site.began:.1f} s"

    pid = process.pid
    process.kill()
    return Broken(look, start)


def dns(site: Site) -> Broken:
    """Kills the DNS process (SIGKILL) while a pod of the node sends queries all the time."""
    agent = site.cluster.agents[site.node]
    before, printed = site.cluster.dns_process(site.node), len(agent.lines)
    number, _ = site.cluster.nodes[site.node]
    namespace = site.cluster.world.namespace(caller_name(number))
    name = f"{SERVICE}.{NAMESPACE}.svc.{ZONE}"

    def look() -> str:
        after = site.cluster.dns_process(site.node)
        if after == before:
            raise LabError(f"the agent of {site.node} has not seen that process {before} was killed")
        return f"process {before} was killed, {after} took its place"

    lookups = [Lookups(Resolver(namespace, server), name) for server in site.cluster.settings.dns_addresses]

    def end() -> str:
        for each in lookups:
            each.stop()
        site.lost = sum(each.failed for each in lookups)
        asked, again = sum(each.asked for each in lookups), sum(each.again for each in lookups)
        slowest = max(each.slowest for each in lookups)
        return f"{asked} lookups, {site.lost} failed, {again} asked again, the slowest took {slowest:.2f} s"

    try:
        site.cluster.patience.until(lambda: all(each.asked > FIRST_LOOKUPS for each in lookups), "lookups")
        os.kill(before, signal.SIGKILL)
        site.began = time.monotonic()
        site.cluster.patience.until_line(agent, "started a DNS process", "another DNS process", after=printed)
    except BaseException:
        end()
        raise
    return Broken(look, end)


def freeze(site: Site) -> Broken:
    """Stops the agent's process (SIGSTOP), and lets it continue later."""
    cluster, node = site.cluster, site.node
    return freeze_process(
        site, cluster.agents[node], lambda: cluster.freeze_agent(node), lambda: cluster.thaw_agent(node)
    )


def freeze_process(site: Site, process: AgentProcess, stop: Callable[[], None], resume: Callable[[], None]) -> Broken:
    """Stops a process (SIGSTOP) until `resume`; connections to it stay open and silent."""

    def look() -> str:
        if process.kernel_state != "T":
            raise LabError(f"process {process.pid} of {site.node} was in state {process.kernel_state}, not T (stopped)")
        return f"process {process.pid} was in state T (stopped) for {time.monotonic() - site.began:.1f} s"

    stop()
    return Broken(look, resume)


def api(site: Site) -> Broken:
    """Stops the API server, or each of several (SIGTERM), and starts it again later."""
    control = site.cluster.control
    assert control is not None, "the API server belongs to the lab"

    def look() -> str:
        if answers(site.cluster.api):
            raise LabError("the API server answered although it was stopped")
        return f"it did not answer {time.monotonic() - site.began:.1f} s later"

    def start() -> str:
        control.restart_servers()
        return "then it did"

    control.stop_servers()
    return Broken(look, start)


async def rollover(site: Site) -> None:
    """Replaces every pod: the new one starts first, then the old one ends, five seconds after its deletion."""
    leaving: list[tuple[float, str]] = []

    def replace(name: str, node: str) -> None:
        site.cluster.add_pod(node)
        leaving.append((time.monotonic() + GRACE, name))
        site.cluster.begin_deletion(name, GRACE)

    def end_first() -> None:
        _, name = leaving.pop(0)
        site.cluster.remove_pod(name)

    olds = {name: node for name, (_, node) in site.cluster.pods.items()}
    try:
        for name, node in olds.items():
            await site.work(partial(replace, name, node))
        while leaving:
            await asyncio.sleep(max(0.0, leaving[0][0] - time.monotonic()))
            await site.work(end_first)
    finally:
        while leaving:  # interrupted: the number of pods stays the same
            await site.work(end_first)
    site.seen.append(
        f"{len(olds)} {'pod' if len(olds) == 1 else 'pods'} replaced; connections to the old ones ended with them"
    )


def flush(site: Site) -> None:
    """Runs `nft flush ruleset` on the node, as another program might."""

    before = table_handles(site)
    if not before:
        raise LabError(f"there is no table of an agent on {site.node}")
    site.cluster.world.nft(site.node, "flush ruleset")
    kept = before == table_handles(site)
    site.seen.append("the agent's tables are owned and were not flushed" if kept else "the agent's tables were flushed")


def table_handles(site: Site) -> dict[str, int]:
    """Returns the handles of the agent's tables by family; a rebuilt table has another one."""
    listed = json.loads(site.cluster.world.run(site.node, ["nft", "-j", "list", "tables"]).stdout)["nftables"]
    tables = [entry["table"] for entry in listed if "table" in entry]
    return {table["family"]: table["handle"] for table in tables if table["name"] == "nodeagent"}


def conntrack(site: Site) -> Broken:
    """Fills the node's connection table with other connections."""
    program = [*PROGRAM, "nodeagent.lab.full_conntrack"]
    filler = site.cluster.start_until(site.node, program, "full", seconds=60.0)
    site.began = time.monotonic()
    before = packets_without_room(site)

    def look() -> str:
        lost = packets_without_room(site) - before
        if not lost:
            raise LabError(f"no packet found the connection table of {site.node} full")
        return f"{lost} packets of new connections found no room"

    def clear() -> None:
        filler.stop(seconds=30.0)

    return Broken(look, clear)


def packets_without_room(site: Site) -> int:
    """Returns how many packets the node's tracker has dropped: the column `drop`, a row for each CPU, in hex."""
    text = inside(site.cluster.world.namespace(site.node), CONNTRACK_STATISTICS.read_text)
    heading, *rows = text.splitlines()
    column = heading.split().index("drop")
    return sum(int(row.split()[column], 16) for row in rows)
