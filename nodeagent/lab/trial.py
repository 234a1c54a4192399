"""A fault under load: what goes on before is well, something breaks, is put right, and is watched until all is well."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack

from msgspec.structs import replace

from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.fault_kinds import KINDS, FaultKind, victim
from nodeagent.lab.fault_verdict import Course, Open, ailing, changes_go_on, changes_since, is_well, judge
from nodeagent.lab.faults import ALL_PERCENT, LEAST_DROPS, Site
from nodeagent.lab.lab_thread import Work
from nodeagent.lab.load_generator import ClusterLoad, HeldConnections, check_rate, find_service, going_on, ways_to
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.service_changes import Changes
from nodeagent.lab.supervisor_messages import (
    FaultProgress,
    FaultRecord,
    FaultReport,
    InjectFault,
    LoadSample,
    Recorded,
    ServicePath,
)

LOAD_TIMEOUT = 2.0
WELL_WITHIN = 5.0
"""Seconds in which all must be well before anything is broken."""
PATIENCE = 20.0
"""Seconds in which it must be well again."""
CHANGES_PATIENCE = 60.0
"""Seconds in which Service changes must go on again; how many they may take is the promise of the fault."""
UNDER_WAY = 3.0
"""Seconds after which every client has given up a server that does not answer."""
LOOK_EVERY = 0.1


async def carry_out(
    request: InjectFault, cluster: LiveCluster, work: Work, present: list[str]
) -> AsyncGenerator[FaultProgress | FaultReport | FaultRecord, None]:
    """Break it under load, put it right, wait until all is well, report. Cancelled, it puts right what is broken.

    present: what is broken in the lab now, in words. Raises ValueError for a request that makes no sense, LabError
    when it came to nothing: all was not well before, the fault could not be made, was not seen, or was not put right.
    """
    site = await work(lambda: site_of(request, cluster, work))
    kind = KINDS[request.kind]
    text = kind.text(site)
    if text in present:
        raise LabError(f"{text}: so it is already")
    service = await work(lambda: find_service(cluster, request.service))
    ways = ways_to(cluster, service, request.protocol)

    def begin() -> ClusterLoad:
        return ClusterLoad(cluster, ways, request.protocol, request.rate, LOAD_TIMEOUT, record=request.record)

    async with AsyncExitStack() as stack:
        held = await stack.enter_async_context(going_on(work, lambda: HeldConnections(cluster, ways, request.protocol)))
        load = await stack.enter_async_context(going_on(work, begin))
        changes: Changes | None = None
        if kind.promise.changes:
            changes = await stack.enter_async_context(going_on(work, lambda: Changes(cluster)))
        before = await watch(load, work, since=load.began, patience=WELL_WITHIN)
        if not is_well(before, load.began):
            raise LabError(f"nothing was broken, for connections failed before: {worst(ailing(before, load.began))}")
        if changes is not None and not await changes_come(changes, load.began, CHANGES_PATIENCE):
            raise LabError("nothing was broken, for Service changes did not come into force before")
        site = await work(lambda: site_of(request, cluster, work))  # another one may lead by now
        text = kind.text(site)
        yield FaultProgress(text)
        others = tuple(present)
        course = await break_and_right(kind, site, request.seconds, text, present, changes)
        after = await watch(load, work, since=course.ended, patience=PATIENCE)
        changed = None
        if changes is not None:
            if await changes_come(changes, course.ended, CHANGES_PATIENCE):
                after = await watch(load, work, since=course.ended, patience=PATIENCE)
            changed = changes_since(changes.seen(), course, kind.promise, time.monotonic())
        opened = Open(held.opened, await work(held.count_alive))
        report = judge(request.kind, text, kind.promise, before, after, course, opened, changed)
        if others:
            report = replace(report, seen=f"{report.seen}; at the same time: {', '.join(others)}")
        yield report
    if request.record:
        yield record_of(request.kind, course, ways, load)


def record_of(kind: str, course: Course, ways: Sequence[ServicePath], load: ClusterLoad) -> FaultRecord:
    """Every connection of a load that has been stopped, in the order in which they were begun."""
    numbers = {way: number for number, way in enumerate(ways)}
    connections = [
        Recorded(
            numbers[way],
            round(one.started - course.began, 6),
            round(one.seconds, 6),
            one.name,
            one.failure.value if one.failure else "",
        )
        for way, one in load.records
    ]
    connections.sort(key=lambda one: one.at)
    return FaultRecord(kind, course.ended - course.began, tuple(ways), tuple(connections))


async def break_and_right(
    kind: FaultKind, site: Site, seconds: float, text: str, present: list[str], changes: Changes | None
) -> Course:
    """How it went. Whatever was broken is put right before anything is raised. seconds: 0 for as long as is usual."""
    site.began = time.monotonic()
    present.append(text)
    try:
        try:
            await kind.inject(site)
            if site.broken is not None:
                await last(kind, seconds, changes)
                site.seen.append(await site.work(site.broken.look))
        finally:
            if site.broken is not None:
                site.seen.append(await site.work(site.broken.right))
    finally:
        present.remove(text)
    return Course(site.began, time.monotonic(), ", ".join(filter(None, site.seen)), site.lost)


async def last(kind: FaultKind, seconds: float, changes: Changes | None) -> None:
    """Return when a fault has lasted: so many seconds, or its usual time. Where changes are looked at, for as long as it
    takes until one that was begun with it well under way is in force, its usual time at most.
    """
    if seconds or changes is None or kind.promise.stands_still:
        await asyncio.sleep(seconds or kind.seconds)
    else:
        await asyncio.sleep(UNDER_WAY)
        await changes_come(changes, time.monotonic(), kind.seconds - UNDER_WAY)


async def changes_come(changes: Changes, since: float, patience: float) -> bool:
    """Return when a Service change that was begun later is in force, or after `patience`; whether one is."""
    deadline = time.monotonic() + patience
    while True:
        if (come := changes_go_on(changes.seen(), since)) or time.monotonic() > deadline:
            return come
        await asyncio.sleep(LOOK_EVERY)


def site_of(request: InjectFault, cluster: LiveCluster, work: Work) -> Site:
    """Raises ValueError when the request makes no sense, LabError when this lab cannot do it."""
    kind = KINDS.get(request.kind)
    if kind is None:
        raise ValueError(f"{request.kind!r} is no fault; there are {', '.join(KINDS)}")
    if request.seconds and not kind.seconds:
        raise ValueError(f"{request.kind} lasts as long as it takes: leave out --for")
    if request.amount and not kind.amount:
        raise ValueError(f"{request.kind} knows no --amount")
    if request.kind == "drop" and request.amount and not LEAST_DROPS <= request.amount <= ALL_PERCENT:
        raise ValueError(f"--amount {request.amount:g}: percent, from {LEAST_DROPS} to {ALL_PERCENT}")
    if request.seconds < 0 or request.amount < 0:
        raise ValueError("--for and --amount are above 0")
    check_rate(request.rate)
    if request.kind == "api" and cluster.control is None:
        raise LabError("the API server is not of the lab, so it is not stopped")
    if request.kind == "dns" and not cluster.settings.dns:
        raise LabError("the lab has no names, so there is no process that answers them")
    return Site(cluster, work, victim(request.kind, cluster, request.node), request.amount or kind.amount)


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
