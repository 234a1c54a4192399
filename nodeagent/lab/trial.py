"""A fault under load: while a load runs well, something is broken and repaired, until the load runs well again."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack

from msgspec.structs import replace

from nodeagent.lab import fault_verdict, load_generator
from nodeagent.lab import supervisor_messages as messages
from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.fault_kinds import KINDS, FaultKind, victim
from nodeagent.lab.faults import ALL_PERCENT, LEAST_DROPS, Site
from nodeagent.lab.lab_thread import Work
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.service_changes import Changes

LOAD_TIMEOUT = 2.0
WELL_WITHIN = 5.0
"""Seconds in which the load must run well before anything is broken."""
PATIENCE = 20.0
"""Seconds in which the load must run well again."""
MOST_LISTED = 3
CHANGES_PATIENCE = 60.0
"""Seconds in which Service changes must take effect again; the promise of a fault says how many they may take."""
UNDER_WAY = 3.0
"""Seconds after which every client has given up a server that does not answer."""
LOOK_EVERY = 0.1


async def carry_out(
    request: messages.InjectFault, cluster: LiveCluster, work: Work, present: list[str]
) -> AsyncGenerator[messages.FaultProgress | messages.FaultReport | messages.FaultRecord, None]:
    """Injects a fault under load, repairs it, waits until the load runs well, and reports. If cancelled, it repairs
    what is broken.

    present: descriptions of the lab's present faults. Raises ValueError for an invalid request, and LabError if there
    is not a result: the load did not run well before, or the fault could not be made, was not seen in effect, or was not
    repaired.
    """
    site = await work(lambda: site_of(request, cluster, work))
    kind = KINDS[request.kind]
    text = kind.text(site)
    if text in present:
        raise LabError(f"{text} already")
    service = await work(lambda: load_generator.find_service(cluster, request.service))
    ways = load_generator.paths_to(cluster, service, request.protocol)

    def begin() -> load_generator.ClusterLoad:
        return load_generator.ClusterLoad(
            cluster, ways, request.protocol, request.rate, LOAD_TIMEOUT, record=request.record
        )

    async with AsyncExitStack() as stack:
        held = await stack.enter_async_context(
            load_generator.stopped_at_exit(
                work, lambda: load_generator.HeldConnections(cluster, ways, request.protocol)
            )
        )
        load = await stack.enter_async_context(load_generator.stopped_at_exit(work, begin))
        changes: Changes | None = None
        if kind.promise.changes:
            changes = await stack.enter_async_context(load_generator.stopped_at_exit(work, lambda: Changes(cluster)))
        before = await watch(load, work, since=load.began, patience=WELL_WITHIN)
        if not fault_verdict.is_well(before, load.began):
            raise LabError(
                f"nothing was broken, because connections failed before:  {worst(fault_verdict.failing_paths(before, load.began))}"
            )
        if changes is not None and not await changes_come(changes, load.began, CHANGES_PATIENCE):
            raise LabError("nothing was broken, because Service changes did not take effect before")
        site = await work(lambda: site_of(request, cluster, work))  # the leader may have changed
        text = kind.text(site)
        yield messages.FaultProgress(text)
        others = tuple(present)
        course = await break_and_repair(kind, site, request.seconds, text, present, changes)
        after = await watch(load, work, since=course.ended, patience=PATIENCE)
        changed = None
        if changes is not None:
            if await changes_come(changes, course.ended, CHANGES_PATIENCE):
                after = await watch(load, work, since=course.ended, patience=PATIENCE)
            changed = fault_verdict.changes_since(changes.seen(), course, kind.promise, time.monotonic())
        opened = fault_verdict.OpenConnections(held.opened, await work(held.count_alive))
        report = fault_verdict.judge(request.kind, text, kind.promise, before, after, course, opened, changed)
        if others:
            report = replace(report, seen=f"{report.seen}; at the same time: {', '.join(others)}")
        yield report
    if request.record:
        yield record_of(request.kind, course, ways, load)


def record_of(
    kind: str, course: fault_verdict.FaultTiming, ways: Sequence[messages.ServicePath], load: load_generator.ClusterLoad
) -> messages.FaultRecord:
    """Returns every connection of a stopped load, in the order of their starts."""
    numbers = {way: number for number, way in enumerate(ways)}
    connections = [
        messages.Recorded(
            numbers[way],
            round(one.started - course.began, 6),
            round(one.seconds, 6),
            one.name,
            one.failure.value if one.failure else "",
        )
        for way, one in load.records
    ]
    connections.sort(key=lambda one: one.at)
    return messages.FaultRecord(kind, course.ended - course.began, tuple(ways), tuple(connections))


async def break_and_repair(
    kind: FaultKind, site: Site, seconds: float, text: str, present: list[str], changes: Changes | None
) -> fault_verdict.FaultTiming:
    """Injects the fault, lets it last, repairs it. Returns its timing. What was broken is repaired before anything is
    raised. seconds: 0 for the default."""
    site.began = time.monotonic()
    present.append(text)
    try:
        try:
            await site.inject(kind.inject)
            if site.broken is not None:
                await let_it_last(kind, seconds, changes)
                site.seen.append(await site.work(site.broken.look))
        finally:
            if site.broken is not None:
                site.seen.append(await site.work(site.broken.repair))
    finally:
        present.remove(text)
    return fault_verdict.FaultTiming(site.began, time.monotonic(), ", ".join(filter(None, site.seen)), site.lost)


async def let_it_last(kind: FaultKind, seconds: float, changes: Changes | None) -> None:
    """Waits as long as a fault lasts: `seconds`, or its default. If changes are watched: until one that began well into
    the fault is served, but at most the default."""
    if seconds or changes is None or kind.promise.stands_still:
        await asyncio.sleep(seconds or kind.seconds)
    else:
        await asyncio.sleep(UNDER_WAY)
        await changes_come(changes, time.monotonic(), kind.seconds - UNDER_WAY)


async def changes_come(changes: Changes, since: float, patience: float) -> bool:
    """Waits until a Service change that began later is served, or for `patience` seconds. Returns whether one is."""
    deadline = time.monotonic() + patience
    while True:
        if (come := fault_verdict.takes_new_changes(changes.seen(), since)) or time.monotonic() > deadline:
            return come
        await asyncio.sleep(LOOK_EVERY)


def site_of(request: messages.InjectFault, cluster: LiveCluster, work: Work) -> Site:
    """Returns the place of the fault. Raises ValueError for an invalid request, LabError if the lab lacks support."""
    kind = KINDS.get(request.kind)
    if kind is None:
        raise ValueError(f"{request.kind!r} is not a fault; there are {', '.join(KINDS)}")
    if request.seconds and not kind.seconds:
        raise ValueError(f"{request.kind} has no duration to choose: leave out --for")
    if request.amount and not kind.amount:
        raise ValueError(f"{request.kind} has no --amount")
    if request.kind == "drop" and request.amount and not LEAST_DROPS <= request.amount <= ALL_PERCENT:
        raise ValueError(f"--amount {request.amount:g}: percent, from {LEAST_DROPS} to {ALL_PERCENT}")
    if request.seconds < 0 or request.amount < 0:
        raise ValueError("--for and --amount are above 0")
    load_generator.check_rate(request.rate)
    if request.kind == "api" and cluster.control is None:
        raise LabError("the API server does not belong to the lab, so it is not stopped")
    if request.kind == "dns" and not cluster.settings.dns:
        raise LabError("the lab was made without DNS, so it has no DNS processes")
    return Site(cluster, work, victim(request.kind, cluster, request.node), request.amount or kind.amount)


async def watch(load: load_generator.ClusterLoad, work: Work, *, since: float, patience: float) -> messages.LoadSample:
    """Returns a sample as soon as the load runs well, or after `patience` and time to try each path twice."""
    patience += 2 * load.spacing
    while True:
        await asyncio.sleep(LOOK_EVERY)
        sample = await work(load.sample)
        if fault_verdict.is_well(sample, since) or sample.at - since > patience:
            return sample


def worst(ways: list[str]) -> str:
    """Returns the first few, and how many more there are."""
    more = ways[MOST_LISTED:]
    return ", ".join(ways[:MOST_LISTED]) + (f" and {len(more)} more paths" if more else "")
