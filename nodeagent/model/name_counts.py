"""What the process that answers names has counted since it began."""

from msgspec import Struct

SECONDS_BOUNDS = tuple(0.00025 * 2**step for step in range(16))
"""Upper bounds of the buckets of durations; CoreDNS's (coredns plugin.TimeBuckets)."""


class Replies(Struct, frozen=True, gc=False, array_like=True):
    """Replies of one kind. server: ``dns://ADDRESS:PORT``. zone: the cluster's for what is ours, ``.`` for what was asked
    upstream. kind: of the question, ``other`` for rare ones."""

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


class UpstreamCounts(Struct, frozen=True, gc=False, array_like=True):
    """What was asked upstream. hedged: a second server was asked because the first was slow. rejected: too many at once."""

    requests: int = 0
    hits: int = 0
    stale: int = 0
    failures: int = 0
    hedged: int = 0
    rejected: int = 0
    cached: int = 0
    cached_bytes: int = 0
    down: tuple[str, ...] = ()


class NameCounts(Struct, frozen=True, gc=False, array_like=True):
    """pid: other counts begin with another process. killed: how often the agent killed a process that answered nothing, since
    the agent began. unserved: queries of clients that are not served, refused.
    dropped: packets that got no reply."""

    pid: int = 0
    services: int = 0
    prepared_bytes: int = 0
    replies: tuple[Replies, ...] = ()
    durations: tuple[Durations, ...] = ()
    upstream: UpstreamCounts = UpstreamCounts()
    unserved: int = 0
    dropped: int = 0
    killed: int = 0
