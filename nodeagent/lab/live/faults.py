"""What can be broken in a lab, and how it is put right again.

Each fault is a function that breaks something and returns what puts it right, or None when it has put itself right.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from msgspec import Struct

from nodeagent.lab.bridge_wiring import BRIDGE
from nodeagent.lab.live.cluster import LiveCluster
from nodeagent.lab.live.load import ClusterLoad, HeldConnections, Work, find_service, going_on, targets
from nodeagent.lab.live.requests import FaultProgress, FaultReport, InjectFault, LoadSample
from nodeagent.lab.live.verdict import is_quiet, judge
from nodeagent.lab.live.wire import restore_lines
from nodeagent.lab.namespaces import LabError, run_ip
from nodeagent.lab.topology import UNDERLAY

LOAD_TIMEOUT = 2.0
WARM_UP = 0.5
QUIET = 0.5
PATIENCE = 20.0
LOOK_EVERY = 0.1
GRACE = 2
DROPS = "lab-drops"
PROGRAM = (sys.executable, "-m")

Righting = Callable[[], None]


class Site:
    """Where something is broken: the node, how much, and what there is to say about it."""

    def __init__(self, cluster: LiveCluster, work: Work, node: str, amount: float) -> None:
        self.cluster = cluster
        self.work = work
        self.node = node
        self.amount = amount
        self.note = ""
        self.since: float | None = None
        """When it was broken, if that took a while."""

    @property
    def underlay(self) -> list[str]:
        """Options of `ip` for the namespace of the bridge."""
        return ["-n", self.cluster.world.namespace(UNDERLAY)]


async def cut(site: Site) -> Righting | None:
    """The link of the node goes down."""
    await site.work(lambda: run_ip(site.underlay, [f"link set {site.node} down"]))
    return lambda: run_ip(site.underlay, [f"link set {site.node} up"])


async def delay(site: Site) -> Righting | None:
    """Each frame to and from the node takes longer."""
    program = [*PROGRAM, "nodeagent.lab.live.wire", site.node, BRIDGE, str(site.amount)]

    def slow_down() -> Righting:
        wire = site.cluster.world.start(UNDERLAY, program)
        wire.wait_for_line("in place")

        def speed_up() -> None:
            if wire.stop() != 0:
                run_ip(site.underlay, restore_lines(site.node, BRIDGE))

        return speed_up

    return await site.work(slow_down)


async def drop(site: Site) -> Righting | None:
    """Some of the packets to and from the node are lost."""
    chains = "".join(
        f"add chain netdev {DROPS} {hook} {{ type filter hook {hook} device {site.node} priority 0; }}\n"
        f"add rule netdev {DROPS} {hook} numgen random mod 1000 < {round(site.amount * 10)} drop\n"
        for hook in ("ingress", "egress")
    )
    await site.work(lambda: site.cluster.world.nft(UNDERLAY, f"add table netdev {DROPS}\n{chains}"))

    def let_pass() -> None:
        site.cluster.world.nft(UNDERLAY, f"delete table netdev {DROPS}")

    return let_pass


async def restart(site: Site) -> Righting | None:
    """The agent is stopped (SIGTERM) and started again."""
    await site.work(lambda: site.cluster.restart_agent(site.node))
    return None


async def kill(site: Site) -> Righting | None:
    """The agent is killed (SIGKILL), and started again later, as systemd would."""
    await site.work(site.cluster.agents[site.node].kill)
    return lambda: site.cluster.restart_agent(site.node)


async def freeze(site: Site) -> Righting | None:
    """The agent is stopped in its tracks (SIGSTOP), and goes on later."""
    await site.work(lambda: site.cluster.freeze_agent(site.node))
    return lambda: site.cluster.thaw_agent(site.node)


async def api(site: Site) -> Righting | None:
    """The API server is stopped (SIGTERM), and started again later."""
    await site.work(site.cluster.stop_api_server)
    return site.cluster.restart_api_server


async def rollover(site: Site) -> Righting | None:
    """Every pod is replaced by a new one: that one first, then the old one ends, two seconds after it was told to."""
    leaving: list[tuple[float, str]] = []
    for name, (_, node) in list(site.cluster.pods.items()):
        await site.work(lambda node=node: site.cluster.add_pod(node))  # type: ignore[misc]
        await site.work(lambda name=name: site.cluster.dismiss_pod(name, GRACE))  # type: ignore[misc]
        leaving.append((time.monotonic() + GRACE, name))
    for moment, name in leaving:
        await asyncio.sleep(max(0.0, moment - time.monotonic()))
        await site.work(lambda name=name: site.cluster.remove_pod(name))  # type: ignore[misc]
    site.note = f"{len(leaving)} pods replaced; connections to those that left ended with them"
    return None


async def flush(site: Site) -> Righting | None:
    """Somebody else runs `nft flush ruleset` on the node."""

    def flush_and_look() -> bool:
        before = table_handles(site)
        site.cluster.world.nft(site.node, "flush ruleset")
        return before == table_handles(site)

    kept = await site.work(flush_and_look)
    site.note = "the agent's tables are owned and were not flushed" if kept else "the agent's tables were flushed"
    return None


def table_handles(site: Site) -> dict[str, int]:
    """Of the agent's tables, by family: a table that is made anew has another one."""
    listed = json.loads(site.cluster.world.run(site.node, ["nft", "-j", "list", "tables"]).stdout)["nftables"]
    tables = [entry["table"] for entry in listed if "table" in entry]
    return {table["family"]: table["handle"] for table in tables if table["name"] == "nodeagent"}


async def conntrack(site: Site) -> Righting | None:
    """The node's connection table is full of other connections."""

    def fill() -> Righting:
        filler = site.cluster.world.start(site.node, [*PROGRAM, "nodeagent.lab.live.conntrack"])
        filler.wait_for_line("full", seconds=60.0)
        site.since = time.monotonic()

        def clear() -> None:
            filler.stop(seconds=30.0)

        return clear

    return await site.work(fill)


class Kind(Struct, frozen=True):
    """A fault. seconds: how long it lasts when nobody says; amount: how much, with its unit in `what`.

    lossless: no connection may fail.
    """

    what: str
    inject: Callable[[Site], Awaitable[Righting | None]]
    seconds: float = 0.0
    amount: float = 0.0
    on_a_node: bool = True
    lossless: bool = False

    def text(self, site: Site) -> str:
        """What is done, in words."""
        return self.what.format(node=site.node, amount=site.amount)


KINDS = {
    "restart": Kind("the agent of {node} is restarted", restart, lossless=True),
    "kill": Kind("the agent of {node} is killed, and started again later", kill, seconds=1.0, lossless=True),
    "freeze": Kind("the agent of {node} is frozen", freeze, seconds=3.0, lossless=True),
    "api": Kind("the API server is down", api, seconds=4.0, on_a_node=False, lossless=True),
    "rollover": Kind("every pod is replaced", rollover, on_a_node=False, lossless=True),
    "flush": Kind("nft flush ruleset on {node}", flush),
    "delay": Kind("{amount:g} ms more to and from {node}", delay, seconds=3.0, amount=20.0),
    "drop": Kind("{amount:g}% of the packets to and from {node} are lost", drop, seconds=3.0, amount=5.0),
    "conntrack": Kind("the connection table of {node} is full", conntrack, seconds=2.0),
    "cut": Kind("the link of {node} is cut", cut, seconds=2.0),
}
"""In the order in which they hurt."""


async def carry_out(
    request: InjectFault, cluster: LiveCluster, work: Work, present: list[str]
) -> AsyncGenerator[FaultProgress | FaultReport, None]:
    """Break it under load, put it right, wait until all is well, report. Cancelled, it puts right what is broken.

    Raises LabError, ValueError.
    """
    site = site_of(request, cluster, work)
    kind = KINDS[request.kind]
    service = await work(lambda: find_service(cluster, request.service))
    ways = targets(cluster, service)
    text = kind.text(site)
    async with (
        going_on(work, lambda: HeldConnections(cluster, ways)) as held,
        going_on(work, lambda: ClusterLoad(cluster, ways, "TCP", request.rate, LOAD_TIMEOUT)) as load,
    ):
        await asyncio.sleep(WARM_UP)
        before = await work(load.sample)
        yield FaultProgress(text)
        began = time.monotonic()
        present.append(text)
        try:
            righted = await break_and_right(kind, site, request.seconds or kind.seconds)
        finally:
            present.remove(text)
        after = await watch_until_quiet(load, work, since=time.monotonic())
        kept = await work(held.count_alive)
        yield judge(
            request.kind,
            text,
            before,
            after,
            began=site.since or began,
            righted=righted,
            recovered=is_quiet(after, began, QUIET),
            held=held.opened,
            kept=kept,
            note=site.note,
        )


async def break_and_right(kind: Kind, site: Site, seconds: float) -> float | None:
    """The moment at which it was put right; None when nothing had to be.

    Cancelled while it breaks, it waits until it is broken, to be able to put it right.
    """
    breaking = asyncio.ensure_future(kind.inject(site))
    try:
        if await asyncio.shield(breaking) is not None:
            await asyncio.sleep(seconds)
    finally:
        righting = await breaking
        if righting is not None:
            await site.work(righting)
    return time.monotonic() if righting is not None else None


def site_of(request: InjectFault, cluster: LiveCluster, work: Work) -> Site:
    """Raises ValueError when the request makes no sense, LabError when this lab cannot do it."""
    kind = KINDS.get(request.kind)
    if kind is None:
        raise ValueError(f"{request.kind!r} is no fault; there are {', '.join(KINDS)}")
    if request.node and request.node not in cluster.nodes:
        raise ValueError(f"there is no node {request.node!r}; there are {', '.join(cluster.nodes)}")
    if request.kind == "api" and cluster.api_server is None:
        raise LabError("the API server is not of the lab, so it is not stopped")
    if request.amount < 0 or (request.kind == "drop" and request.amount > 100):
        raise ValueError(f"--amount {request.amount:g}: not for {request.kind}")
    node = request.node or next(iter(cluster.nodes))
    return Site(cluster, work, node, request.amount or kind.amount)


async def watch_until_quiet(load: ClusterLoad, work: Work, *, since: float) -> LoadSample:
    """What the load has seen once all is well again, or after a long time."""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        sample = await work(load.sample)
        if is_quiet(sample, since, QUIET) or sample.at - since > PATIENCE:
            return sample
