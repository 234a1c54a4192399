"""What the page shows, from what was looked at. Pure.

Rates are per second, between the last two looks. Moments are CLOCK_MONOTONIC, in seconds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from nodeagent.lab.net.latencies import merged, percentile
from nodeagent.lab.supervisor_messages import LoadSample, ServicePath, WaySample

MOST_TALKS = 200
MOST_TRACKED = 100


class ServiceLook(Struct, frozen=True):
    """A service as a node's agent has it. connections: that its counters have counted."""

    address: str
    endpoints: int
    connections: int
    state: str


class NodeLook(Struct, frozen=True):
    """A node at a moment. agent: running, stopped, frozen. services: by NAMESPACE/NAME; None when nobody answered."""

    at: float
    agent: str
    restarts: int
    healthy: bool
    services: dict[str, ServiceLook] | None


class Tracked(Struct, frozen=True):
    """Connections in a node's connection table that the node translated: from whom, to which address, to which endpoint."""

    node: str
    client: str
    address: str
    endpoint: str
    count: int


class Talk(Struct, frozen=True):
    """What the load does on one way: answers and failures a second, the median in seconds, answers a second by pod."""

    client: str
    role: str
    kind: str
    address: str
    answered: float
    failed: float
    median: float | None
    pods: dict[str, float]


class Point(Struct, frozen=True, array_like=True):
    """All ways together at a moment."""

    at: float
    answered: float
    failed: float
    p50: float | None
    p99: float | None


class FaultPeriod(Struct, frozen=True):
    """A fault in effect from one moment to another; ended: None while it is."""

    what: str
    began: float
    ended: float | None = None


class NodeState(Struct, frozen=True):
    """connections: new ones a second that its counters have seen; None: not known. cut: its link, by this page."""

    name: str
    addresses: tuple[str, ...]
    agent: str
    restarts: int
    healthy: bool
    cut: bool
    connections: float | None
    pods: dict[str, float]


class ServiceState(Struct, frozen=True):
    """endpoints: on each node, in the order of the nodes; None where nobody answered."""

    name: str
    address: str
    endpoints: tuple[int | None, ...]
    connections: float


def rate(later: float, earlier: float, seconds: float) -> float:
    """The increase of a counter per second; 0 where it has started again."""
    return round(max(0.0, later - earlier) / seconds, 2) if seconds > 0 else 0.0


def talk_of(later: WaySample, earlier: WaySample | None, seconds: float) -> Talk:
    """One way between two samples; `earlier` is None for the first sample."""
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
    """Every way of a load between two samples of it."""
    seconds = later.at - earlier.at if earlier else later.seconds
    before = earlier.ways if earlier else [None] * len(later.ways)
    return [talk_of(one, other, seconds) for one, other in zip(later.ways, before, strict=True)]


def together(talks: Iterable[Talk]) -> tuple[Talk, ...]:
    """Those of several loads on the same way as one, by client; of too many for a page, the busiest."""
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
    """All loads as one point of the charts. at: seconds. pairs: the latest sample of each load, and the one before."""
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
    """A node, from its last two looks (None: there is only one)."""
    now, before = looks
    connections = None
    if now.services is not None and before is not None and before.services is not None:
        grown = sum(
            max(0, one.connections - before.services[key].connections)
            for key, one in now.services.items()
            if key in before.services
        )
        connections = rate(grown, 0, now.at - before.at)
    return NodeState(name, addresses, now.agent, now.restarts, now.healthy, cut, connections, dict(pods))


def service_states(looks: Sequence[tuple[NodeLook, NodeLook | None]]) -> tuple[ServiceState, ...]:
    """Every service that a node's agent knows, by name."""
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
    """Answers a second that each pod gave."""
    total: Counter[str] = Counter()
    for talk in talks:
        total.update(talk.pods)
    return {name: round(value, 2) for name, value in total.items()}


def fault_periods_at(at: float, before: Sequence[FaultPeriod], present: Sequence[str]) -> list[FaultPeriod]:
    """Faults until now: those that are new have just begun, those that are gone have just ended."""
    found = [
        FaultPeriod(one.what, one.began, at) if one.ended is None and one.what not in present else one for one in before
    ]
    known = {one.what for one in found if one.ended is None}
    return [*found, *(FaultPeriod(what, at) for what in present if what not in known)]


def most_tracked(found: Iterable[Tracked]) -> tuple[Tracked, ...]:
    """The MOST_TRACKED entries with the most connections, those first."""
    return tuple(sorted(found, key=lambda one: (-one.count, one.node, one.client, one.endpoint))[:MOST_TRACKED])
