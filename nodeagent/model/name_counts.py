"""What the process that answers DNS queries has counted since it started."""

from msgspec import Struct

SECONDS_BOUNDS = tuple(0.00025 * 2**step for step in range(16))
"""Upper bounds of the buckets of durations, those of CoreDNS (coredns plugin.TimeBuckets)."""


class Replies(Struct, frozen=True, gc=False, array_like=True):
    """Replies of one kind. server: ``dns://ADDRESS:PORT``. zone: the cluster's for names of ours, ``.`` for names that were resolved
    upstream. kind: record type of the question, ``other`` for rare ones."""

    server: str
    proto: str
    family: str
    zone: str
    kind: str
    rcode: str
    count: int


class Durations(Struct, frozen=True, gc=False, array_like=True):
    """How long replies took. counts: by bucket of `SECONDS_BOUNDS`, and one more for longer ones."""

    server: str
    zone: str
    counts: tuple[int, ...]
    total_seconds: float


class UpstreamFault(Struct, frozen=True, gc=False, array_like=True):
    """What is wrong with a resolver at present. kind: a word of `nodeagent.names.upstream.upstream_fault`. detail: the rcode, the
    seconds of an answer or the system's error."""

    server: str
    kind: str
    detail: str = ""


class UpstreamCounts(Struct, frozen=True, gc=False, array_like=True):
    """Upstream queries. hedged: a second server was asked because the first was slow. rejected: too many at once. down: servers that
    do not answer or lead back to us; faults: these and others, with the reason. unresolved: zones whose servers all fail, ``.`` for
    names in no stub zone."""

    requests: int = 0
    hits: int = 0
    stale: int = 0
    failures: int = 0
    hedged: int = 0
    rejected: int = 0
    cached: int = 0
    cached_bytes: int = 0
    down: tuple[str, ...] = ()
    faults: tuple[UpstreamFault, ...] = ()
    unresolved: tuple[str, ...] = ()


class NameCounts(Struct, frozen=True, gc=False, array_like=True):
    """All counts of the process.

    pid: another process starts its counts from zero. killed: how often the agent killed a process that did not answer, since
    the agent started. unserved: refused queries of clients that are not served. dropped: packets that got no reply.
    """

    pid: int = 0
    services: int = 0
    prepared_bytes: int = 0
    replies: tuple[Replies, ...] = ()
    durations: tuple[Durations, ...] = ()
    upstream: UpstreamCounts = UpstreamCounts()
    unserved: int = 0
    dropped: int = 0
    killed: int = 0
