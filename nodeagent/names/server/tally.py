"""Counts replies, at a fifth of a microsecond for each query."""

import socket
from bisect import bisect_left
from collections.abc import Iterator

from nodeagent.model.name_counts import SECONDS_BOUNDS, Durations, Replies
from nodeagent.wire.dns.codes import RecordType, type_text

OTHER = b""
HTTPS, SVCB, DS, DNSKEY, NAPTR, CAA = 65, 64, 43, 48, 35, 257
KINDS = {
    **{kind.to_bytes(2, "big"): type_text(kind) for kind in RecordType if kind is not RecordType.OPT},
    **{number.to_bytes(2, "big"): text for number, text in ((HTTPS, "HTTPS"), (SVCB, "SVCB"), (DS, "DS"))},
    **{number.to_bytes(2, "big"): text for number, text in ((DNSKEY, "DNSKEY"), (NAPTR, "NAPTR"), (CAA, "CAA"))},
    OTHER: "other",
}
"""The record types that are counted separately, as in a question."""
RCODES = ("NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED")


class ReplyCounts:
    """Counters of the replies of one origin on one socket. by_kind: type → number of replies for each rcode."""

    __slots__ = ("_counts", "_total", "by_kind")

    def __init__(self) -> None:
        self.by_kind = {kind: [0] * 16 for kind in KINDS}
        self._counts = [0] * (len(SECONDS_BOUNDS) + 1)
        self._total = 0.0

    def reply(self, kind: bytes, rcode: int) -> None:
        """Counts one reply. kind: as in the question."""
        (self.by_kind.get(kind) or self.by_kind[OTHER])[rcode] += 1

    def add_duration(self, seconds: float, count: int = 1) -> None:
        """Adds `count` replies that took `seconds` in all."""
        self._counts[bisect_left(SECONDS_BOUNDS, seconds / count)] += count
        self._total += seconds

    def replies(self, server: str, proto: str, family: str, zone: str) -> Iterator[Replies]:
        """Yields the counts of replies that are not 0, with the labels of their metric."""
        for kind, counts in self.by_kind.items():
            for rcode, count in enumerate(counts):
                if count:
                    text = RCODES[rcode] if rcode < len(RCODES) else f"RCODE{rcode}"
                    yield Replies(server, proto, family, zone, KINDS[kind], text, count)

    def durations(self, server: str, zone: str) -> Iterator[Durations]:
        """Yields the histogram of answer times; nothing before the first reply."""
        if any(self._counts):
            yield Durations(server, zone, tuple(self._counts), self._total)


class Tally:
    """Counters of one listening socket. ours: replies from our own names; theirs: replies that needed upstream."""

    def __init__(self, server: str, proto: str, family: str) -> None:
        self._server, self._proto, self._family = server, proto, family
        self.ours = ReplyCounts()
        self.theirs = ReplyCounts()

    def replies(self, zone: str) -> Iterator[Replies]:
        """Yields the counts of replies. zone: the label of replies from our own names."""
        yield from self.ours.replies(self._server, self._proto, self._family, zone)
        yield from self.theirs.replies(self._server, self._proto, self._family, ".")

    def durations(self, zone: str) -> Iterator[Durations]:
        """Yields the histograms. zone: as in `replies`."""
        yield from self.ours.durations(self._server, zone)
        yield from self.theirs.durations(self._server, ".")


def tally_of(sock: socket.socket, proto: str) -> Tally:
    """Returns the counters for a bound socket. The numbers for the families are CoreDNS's."""
    address, port = sock.getsockname()[:2]
    is_ipv6 = sock.family == socket.AF_INET6
    return Tally(f"dns://[{address}]:{port}" if is_ipv6 else f"dns://{address}:{port}", proto, "2" if is_ipv6 else "1")
