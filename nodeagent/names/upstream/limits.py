"""The limits of the upstream side, in seconds, bytes and numbers. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The limits of the cache.
    entries, size: answers with data, and their bytes; denials, denials_size: the same for answers that there is no
    such name or no such data; failures: failed questions.

    longest, longest_negative: upper limits of a TTL. failure: how long a failed question is not asked again. stale: how
    long after it expired a positive answer may be used (RFC 8767). stale_ttl: the TTL that clients then get. rest: how
    long a stale answer is used without asking, after asking failed.
    """

    entries: int = 10_000
    size: int = 8 << 20
    denials: int = 10_000
    denials_size: int = 4 << 20
    failures: int = 1_000
    longest: int = 3600
    longest_negative: int = 30
    failure: float = 1.0
    stale: float = 86400.0
    stale_ttl: int = 30
    rest: float = 30.0


@dataclass(frozen=True, slots=True)
class AskLimits:
    """The limits of questions to upstream servers.
    questions: different questions in progress, of which one client has half at most. waiting: queries that wait for
    them.

    hedge: time until a second server is asked; again: until all are asked once more; stream: until TCP is tried; total:
    until a question has failed; second_best: how long other servers may still answer after one refused. servers: how
    many are asked for one question. stale_patience: how long a client waits before it gets a stale answer. strangers:
    wrong packets on one socket until TCP is used instead. payload: the EDNS size that we announce.
    """

    questions: int = 1_000
    waiting: int = 10_000
    hedge: float = 0.1
    again: float = 0.8
    stream: float = 2.0
    total: float = 4.0
    second_best: float = 0.8
    servers: int = 4
    stale_patience: float = 1.8
    strangers: int = 8
    payload: int = 1232


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """When an upstream server counts as failed, and how it is probed.
    failures: in a row, until a server is asked last. first, longest: pauses between probes of such a server.

    probe: timeout of a probe; stream: of one by TCP, of a server that answers by UDP. again: until a probe of a suspected server is sent a second time. rest: how long a server that passed a
    probe is not probed again. slow: an answer that takes this long is late. unasked: how long a server may be asked nothing before it gets
    a copy of a question that another one has answered. plain: how long a server that refused EDNS is asked without it.
    """

    failures: int = 3
    first: float = 0.5
    longest: float = 30.0
    probe: float = 4.0
    stream: float = 3.0
    again: float = 0.5
    rest: float = 2.0
    slow: float = 1.0
    unasked: float = 30.0
    plain: float = 600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one `Upstream`."""

    cache: CacheLimits = CacheLimits()
    ask: AskLimits = AskLimits()
    health: HealthLimits = HealthLimits()
