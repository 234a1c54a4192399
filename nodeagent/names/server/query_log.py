"""A sample of the queries, as lines for the agent's log."""

from nodeagent.names.server.tally import RCODES
from nodeagent.wire.dns.codes import HEADER_SIZE, RD, type_text
from nodeagent.wire.dns.domain_names import to_text

MOST_LINES = 100
"""Lines kept between two calls of `take`."""
FLAGS = ((2, 0x04, "aa"), (2, 0x02, "tc"), (2, RD, "rd"), (3, 0x80, "ra"), (3, 0x20, "ad"), (3, 0x10, "cd"))
"""Byte of the header, bit, and word for it."""


class QueryLog:
    """Samples queries. every: one of this many queries is logged; 0: none."""

    def __init__(self, every: int = 0) -> None:
        self.every = every
        self._passed = 0
        self._lines: list[str] = []
        self._lost = 0

    def note(self, packet: bytes, answer: bytes, client: str, proto: str, seconds: float, count: int = 1) -> None:
        """Counts `count` answered queries, of which this is the last; keeps a line about it once in `every` queries."""
        self._passed += count
        if not self.every or self._passed < self.every:
            return
        self._passed = 0
        if len(self._lines) < MOST_LINES:
            self._lines.append(line(packet, answer, client, proto, seconds))
        else:
            self._lost += 1

    def take(self) -> list[str]:
        """Returns the lines since the last call."""
        lines, self._lines = self._lines, []
        if self._lost:
            lines.append(f"{self._lost} more sampled queries were not written")
            self._lost = 0
        return lines


def line(packet: bytes, answer: bytes, client: str, proto: str, seconds: float) -> str:
    """Returns the log line of a valid query: client, type and name, then rcode, flags, size and time of its answer."""
    end = HEADER_SIZE
    while packet[end]:
        end += 1 + packet[end]
    name = to_text(packet[HEADER_SIZE : end + 1])
    kind = type_text(packet[end + 1] << 8 | packet[end + 2])
    code = answer[3] & 0x0F
    rcode = RCODES[code] if code < len(RCODES) else f"RCODE{code}"
    flags = ",".join(word for byte, bit, word in FLAGS if answer[byte] & bit)
    return f"{client} {kind} {name} {proto} {rcode} {flags} {len(answer)} bytes {seconds * 1000:.2f} ms"
