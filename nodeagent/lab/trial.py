"""A fault under load: what goes on before is well, something breaks, is put right, and is watched until all is well."""

import asyncio
import time
from collections.abc import AsyncGenerator

from msgspec.structs import replace

from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.faults import ALL_PERCENT, KINDS, LEAST_DROPS, FaultKind, Site
from nodeagent.lab.load import ClusterLoad, HeldConnections, check_rate, find_service, going_on, ways_to
from nodeagent.lab.net.namespaces import LabError
from nodeagent.lab.requests import FaultProgress, FaultReport, InjectFault, LoadSample
from nodeagent.lab.verdict import Course, Open, ailing, is_well, judge
from nodeagent.lab.worker import Work

LOAD_TIMEOUT = 2.0
WELL_WITHIN = 5.0
"""Seconds in which all must be well before anything is broken."""
PATIENCE = 20.0
"""Seconds in which it must be well again."""
LOOK_EVERY = 0.1


async def carry_out(
    request: InjectFault, cluster: LiveCluster, work: Work, present: list[str]
) -> AsyncGenerator[FaultProgress | FaultReport, None]:
    """Break it under load, put it right, wait until all is well, report. Cancelled, it puts right what is broken.

    present: what is broken in the lab now, in words. Raises ValueError for a request that makes no sense, LabError
    when it came to nothing: all was not well before, the fault could not be made, was not seen, or was not put right.
    """
    site = site_of(request, cluster, work)
    kind = KINDS[request.kind]
    text = kind.text(site)
    if text in present:
        raise LabError(f"{text}: so it is already")
    service = await work(lambda: find_service(cluster, request.service))
    ways = ways_to(cluster, service, request.protocol)
    async with (
        going_on(work, lambda: HeldConnections(cluster, ways, request.protocol)) as held,
        going_on(work, lambda: ClusterLoad(cluster, ways, request.protocol, request.rate, LOAD_TIMEOUT)) as load,
    ):
        before = await watch(load, work, since=load.began, patience=WELL_WITHIN)
        if not is_well(before, load.began):
            raise LabError(f"nothing was broken, for connections failed before: {worst(ailing(before, load.began))}")
        yield FaultProgress(text)
        others = tuple(present)
        course = await break_and_right(kind, site, request.seconds or kind.seconds, text, present)
        after = await watch(load, work, since=course.ended, patience=PATIENCE)
        opened = Open(held.opened, await work(held.count_alive))
        report = judge(request.kind, text, kind.promise, before, after, course, opened)
        if others:
            report = replace(report, seen=f"{report.seen}; at the same time: {', '.join(others)}")
        yield report


async def break_and_right(kind: FaultKind, site: Site, seconds: float, text: str, present: list[str]) -> Course:
    """How it went. Whatever was broken is put right before anything is raised."""
    site.began = time.monotonic()
    present.append(text)
    try:
        try:
            await kind.inject(site)
            if site.broken is not None:
                await asyncio.sleep(seconds)
                site.seen.append(await site.work(site.broken.look))
        finally:
            if site.broken is not None:
                site.seen.append(await site.work(site.broken.right))
    finally:
        present.remove(text)
    return Course(site.began, time.monotonic(), ", ".join(filter(None, site.seen)), site.lost)


def site_of(request: InjectFault, cluster: LiveCluster, work: Work) -> Site:
    """Raises ValueError when the request makes no sense, LabError when this lab cannot do it."""
    kind = KINDS.get(request.kind)
    if kind is None:
        raise ValueError(f"{request.kind!r} is no fault; there are {', '.join(KINDS)}")
    if request.node and not kind.on_a_node:
        raise ValueError(f"{request.kind} is not on one node: leave out {request.node!r}")
    if request.node and request.node not in cluster.nodes:
        raise ValueError(f"there is no node {request.node!r}; there are {', '.join(cluster.nodes)}")
    if request.seconds and not kind.seconds:
        raise ValueError(f"{request.kind} lasts as long as it takes: leave out --for")
    if request.amount and not kind.amount:
        raise ValueError(f"{request.kind} knows no --amount")
    if request.kind == "drop" and request.amount and not LEAST_DROPS <= request.amount <= ALL_PERCENT:
        raise ValueError(f"--amount {request.amount:g}: percent, from {LEAST_DROPS} to {ALL_PERCENT}")
    if request.seconds < 0 or request.amount < 0:
        raise ValueError("--for and --amount are above 0")
    check_rate(request.rate)
    if request.kind == "api" and cluster.api_server is None:
        raise LabError("the API server is not of the lab, so it is not stopped")
    if request.kind == "dns" and not cluster.settings.dns:
        raise LabError("the lab has no names, so there is no process that answers them")
    node = request.node or next(iter(cluster.nodes))
    return Site(cluster, work, node, request.amount or kind.amount)


async def watch(load: ClusterLoad, work: Work, *, since: float, patience: float) -> LoadSample:
    """What the load has seen once all is well, or after `patience` and the time in which each way is tried twice."""
    patience += 2 * load.spacing
    while True:
        await asyncio.sleep(LOOK_EVERY)
        sample = await work(load.sample)
        if is_well(sample, since) or sample.at - since > patience:
            return sample


def worst(ways: list[str], most: int = 3) -> str:
    """The first few of many."""
    return ", ".join(ways[:most]) + (f" and {len(ways) - most} more ways" if len(ways) > most else "")
