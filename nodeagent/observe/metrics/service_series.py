"""Connections by service port as Prometheus series, no more than so many of them.

Written here and not by prometheus-client, which takes ten microseconds for a line: 10,000 Services must not cost a scrape
more than 50 ms of processor time. `tests/unit/observe/metrics/` reads the text with prometheus-client's parser.
"""

from collections.abc import Iterable, Mapping
from heapq import nlargest

NAME = "nodeagent_service_connections_total"
OTHERS = "nodeagent_other_services_connections_total"
_HEAD = (
    f"# HELP {NAME} New connections to the addresses and node ports of a service port, answered or not\n"
    f"# TYPE {NAME} counter\n"
)
_OTHERS_HEAD = f"# HELP {OTHERS} The same of the service ports that have no series\n# TYPE {OTHERS} counter\n"

_LITTLE = 10
"""A total that is smaller than the one before by less than this part was read in the middle of a commit, before it was known what
the old element had counted last: Prometheus must not take it for a counter that began anew."""


class ServiceSeries:
    """Which service ports have a series: those that have had one, then those with most connections, `most` of them. A series
    that is there stays as long as its Service, for one that comes and goes says nothing."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._shown: dict[bytes, str] = {}
        self._totals: dict[bytes, int] = {}
        self._others = 0

    def text(self, counts: Iterable[Iterable[tuple[int, bytes]]]) -> bytes:
        """The series. counts: connections and the name `namespace/service:port`, which stands there for each address."""
        totals: dict[bytes, int] = {}
        for found in counts:
            for connections, name in found:
                totals[name] = totals.get(name, 0) + connections
        for name, total in totals.items():
            before = self._totals.get(name, 0)
            if 0 < before - total <= before // _LITTLE:
                totals[name] = before
        self._shown = {name: labels for name, labels in self._shown.items() if name in totals}
        self._choose(totals)
        self._count_others(totals)
        lines = [f"{labels} {totals[name]}\n" for name, labels in self._shown.items()]
        return "".join((_HEAD, *lines, _OTHERS_HEAD, f"{OTHERS} {self._others}\n")).encode()

    def _count_others(self, totals: dict[bytes, int]) -> None:
        """What came since the last time to those without a series; those that are gone take nothing away."""
        before = self._totals
        stayed = sum(before.values()) - sum(before[name] for name in before.keys() - totals.keys())
        came = sum(totals.values()) - stayed
        shown = sum(totals[name] - before.get(name, 0) for name in self._shown)
        self._others += max(0, came - shown)
        self._totals = totals

    def _choose(self, totals: Mapping[bytes, int]) -> None:
        room = self._most - len(self._shown)
        if room <= 0:
            return
        waiting = [name for name in totals if name not in self._shown]
        for name in waiting if len(waiting) <= room else nlargest(room, waiting, key=lambda one: (totals[one], one)):
            self._shown[name] = _labelled(name)


def _labelled(name: bytes) -> str:
    namespace, _, rest = name.decode(errors="replace").partition("/")
    service, _, port = rest.partition(":")
    return f'{NAME}{{namespace="{_escaped(namespace)}",service="{_escaped(service)}",port="{_escaped(port)}"}}'


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
