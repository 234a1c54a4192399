"""Computes what the page shows from observations. Pure.

Rates are per second, between the last two observations. Times are CLOCK_MONOTONIC, in seconds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from nodeagent.lab.net.latencies import merged, percentile
from nodeagent.lab.supervisor_messages import LoadSample, ServicePath, WaySample

MOST_TALKS = 200
MOST_TRACKED = 100


class ServiceLook(Struct, frozen=True):
    """A service as a node's agent reports it. connections: the value of its counters."""

    address: str
    endpoints: int
    connections: int
    state: str


class NodeLook(Struct, frozen=True):
    """A node at one moment. agent: running, stopped, frozen, or silent if it runs and does not answer. services: by NAMESPACE/NAME; None
    without an answer. problem: as `nodeagent problems` begins; empty without one."""

    at: float
    agent: str
    restarts: int
    healthy: bool
    services: dict[str, ServiceLook] | None
    problem: str = ""


class Tracked(Struct, frozen=True):
    """Connections that a node translated, from its connection table: client, address, endpoint."""

    node: str
    client: str
    address: str
    endpoint: str
    count: int


class Talk(Struct, frozen=True):
    """Load on one path: answers and failures per second, the median in seconds, answers per second by pod."""

    client: str
    role: str
    kind: str
    address: str
    answered: float
    failed: float
    median: float | None
    pods: dict[str, float]


class Point(Struct, frozen=True, array_like=True):
    """All paths together at one moment."""

    at: float
    answered: float
    failed: float
    p50: float | None
    p99: float | None


class FaultPeriod(Struct, frozen=True):
    """A fault in effect from one moment to another; ended: None while it is in effect."""

    what: str
    began: float
    ended: float | None = None


class NodeState(Struct, frozen=True):
    """A node. problem: as in `NodeLook`. connections: new ones per second by its counters; None: unknown. cut: whether this page cut its link."""

    name: str
    addresses: tuple[str, ...]
    agent: str
    restarts: int
    healthy: bool
    problem: str
    cut: bool
    connections: float | None
    pods: dict[str, float]


class ServiceState(Struct, frozen=True):
    """A service. endpoints: on each node, in the order of the nodes; None if its agent did not answer."""

    name: str
    address: str
    endpoints: tuple[int | None, ...]
    connections: float


def rate(later: float, earlier: float, seconds: float) -> float:
    """Returns the increase of a counter per second; 0 if it was reset."""
    return round(max(0.0, later - earlier) / seconds, 2) if seconds > 0 else 0.0


def talk_of(later: WaySample, earlier: WaySample | None, seconds: float) -> Talk:
    """Returns one path between two samples; `earlier` is None for the first sample."""
    way: ServicePath = later.way
    names = earlier.names if earlier else {}
    took = Counter(later.latencies) - Counter(earlier.latencies if earlier else {})
    return Talk(
        way.client,
        way.role,
        way.kind,
        way.text.partition(" ")[2],
        rate(later.answered, earlier.answered if earlier else 0, seconds),
        rate(later.failed, earlier.failed if earlier else 0, seconds),
        percentile(took, 0.5),
        {name: per for name, count in later.names.items() if (per := rate(count, names.get(name, 0), seconds))},
    )


def talks_of(later: LoadSample, earlier: LoadSample | None) -> list[Talk]:
    """Returns every path of a load between two samples."""
    seconds = later.at - earlier.at if earlier else later.seconds
    before = earlier.ways if earlier else [None] * len(later.ways)
    return [talk_of(one, other, seconds) for one, other in zip(later.ways, before, strict=True)]


def together(talks: Iterable[Talk]) -> tuple[Talk, ...]:
    """Merges entries of several loads on the same path, ordered by client; if there are too many, only the busiest."""
    found: dict[tuple[str, str, str], Talk] = {}
    for talk in talks:
        key = (talk.client, talk.kind, talk.address)
        other = found.get(key)
        if other is None:
            found[key] = talk
            continue
        pods = Counter(other.pods)
        pods.update(talk.pods)
        medians = [median for median in (other.median, talk.median) if median is not None]
        found[key] = Talk(
            *(talk.client, talk.role, talk.kind, talk.address),
            other.answered + talk.answered,
            other.failed + talk.failed,
            max(medians, default=None),
            dict(pods),
        )
    busiest = sorted(found.values(), key=lambda one: -(one.answered + one.failed))[:MOST_TALKS]
    return tuple(sorted(busiest, key=lambda one: (one.client, one.kind, one.address)))


def point_of(at: float, pairs: Sequence[tuple[LoadSample, LoadSample | None]]) -> Point:
    """Returns all loads as one point of the charts. pairs: the latest sample of each load, and the one before."""
    answered = failed = 0.0
    took: Counter[int] = Counter()
    for later, earlier in pairs:
        seconds = later.at - earlier.at if earlier else later.seconds
        answered += rate(later.answered, earlier.answered if earlier else 0, seconds)
        failed += rate(later.failed, earlier.failed if earlier else 0, seconds)
        took += merged(way.latencies for way in later.ways)
        took -= merged(way.latencies for way in earlier.ways) if earlier else Counter()
    return Point(at, round(answered, 2), round(failed, 2), percentile(took, 0.5), percentile(took, 0.99))


def node_state(
    name: str,
    addresses: tuple[str, ...],
    looks: tuple[NodeLook, NodeLook | None],
    *,
    cut: bool,
    pods: Mapping[str, float],
) -> NodeState:
    """Returns a node from its last two observations (None: there is only one)."""
    now, before = looks
    connections = None
    if now.services is not None and before is not None and before.services is not None:
        grown = sum(
            max(0, one.connections - before.services[key].connections)
            for key, one in now.services.items()
            if key in before.services
        )
        connections = rate(grown, 0, now.at - before.at)
    return NodeState(name, addresses, now.agent, now.restarts, now.healthy, now.problem, cut, connections, dict(pods))


def service_states(looks: Sequence[tuple[NodeLook, NodeLook | None]]) -> tuple[ServiceState, ...]:
    """Returns every service that an agent knows, by name."""
    names = sorted({name for now, _ in looks for name in now.services or ()})
    found = []
    for name in names:
        now_here = [(now.services or {}).get(name) for now, _ in looks]
        connections = 0.0
        for now, before in looks:
            if before and name in (now.services or {}) and name in (before.services or {}):
                one, other = (now.services or {})[name], (before.services or {})[name]
                connections += rate(one.connections, other.connections, now.at - before.at)
        address = next((one.address for one in now_here if one), "")
        endpoints = tuple(None if one is None else one.endpoints for one in now_here)
        found.append(ServiceState(name, address, endpoints, round(connections, 2)))
    return tuple(found)


def answers_by_pod(talks: Iterable[Talk]) -> dict[str, float]:
    """Returns the answers per second of each pod."""
    total: Counter[str] = Counter()
    for talk in talks:
        total.update(talk.pods)
    return {name: round(value, 2) for name, value in total.items()}


def fault_periods_at(at: float, before: Sequence[FaultPeriod], present: Sequence[str]) -> list[FaultPeriod]:
    """Returns the faults until `at`: new ones begin now, those that are no longer present end now."""
    found = [
        FaultPeriod(one.what, one.began, at) if one.ended is None and one.what not in present else one for one in before
    ]
    known = {one.what for one in found if one.ended is None}
    return [*found, *(FaultPeriod(what, at) for what in present if what not in known)]


def most_tracked(found: Iterable[Tracked]) -> tuple[Tracked, ...]:
    """Returns the MOST_TRACKED entries with the most connections, in descending order."""
    return tuple(sorted(found, key=lambda one: (-one.count, one.node, one.client, one.endpoint))[:MOST_TRACKED])
