"""Connections by service port as Prometheus series, up to a maximum number of series.

Rendered here and not by prometheus-client, which takes ten microseconds for a line: 10,000 Services must not cost a scrape
more than 50 ms of processor time. `tests/unit/proxy/observe/metrics/` reads the text with prometheus-client's parser.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest

from nodeagent.model.addresses import Family, endpoint_text, unpack_address

NAME = "nodeagent_service_connections_total"
OTHERS = "nodeagent_other_services_connections_total"
ENDPOINT_NAME = "nodeagent_endpoint_connections_total"
OTHER_ENDPOINTS = "nodeagent_other_endpoints_connections_total"

_BETWEEN = b"\0"
_LITTLE = 10
"""A total that is smaller than the one before by less than this part was read in the middle of a commit, before the last count
of the old element was known: Prometheus must not treat it as a counter that started again."""


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """The names of series, and of the series for all others. labelled: returns the labels of one series."""

    name: str
    help: str
    others: str
    others_help: str
    labelled: Callable[[bytes], str]


class ServiceSeries:
    """Chooses which service ports have a series: those that have had one, then those with most connections, up to `most`. A series stays
    as long as its Service, because one that comes and goes is useless. names: for service ports, or ENDPOINTS."""

    def __init__(self, most: int, names: "SeriesNames | None" = None) -> None:
        self._most = most
        self._names = SERVICES if names is None else names
        self._shown: dict[bytes, str] = {}
        self._totals: dict[bytes, int] = {}
        self._others = 0

    def text(self, counts: Iterable[Iterable[tuple[int, bytes]]]) -> bytes:
        """Returns the text of the series. counts: (connections, `namespace/service:port`) of each address; those of one name are added up."""
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
        names = self._names
        head = f"# HELP {names.name} {names.help}\n# TYPE {names.name} counter\n"
        rest = (
            f"# HELP {names.others} {names.others_help}\n# TYPE {names.others} counter\n{names.others} {self._others}\n"
        )
        return "".join((head, *lines, rest)).encode()

    def _count_others(self, totals: dict[bytes, int]) -> None:
        """Counts what came since the last time to those without a series; deleted ones do not reduce the count."""
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
            self._shown[name] = f"{self._names.name}{{{self._names.labelled(name)}}}"


def about_endpoint(name: bytes, family: Family, endpoint: bytes) -> bytes:
    """Returns the key of an endpoint's series. name: `namespace/service:port`; endpoint: address and port in the kernel's form."""
    address = unpack_address(endpoint[: family.address_length])
    port = int.from_bytes(endpoint[family.address_length : family.address_length + 2], "big")
    return name + _BETWEEN + endpoint_text(address, port).encode()


def _labels_of_service(name: bytes) -> str:
    namespace, _, rest = name.decode(errors="replace").partition("/")
    service, _, port = rest.partition(":")
    return f'namespace="{_escaped(namespace)}",service="{_escaped(service)}",port="{_escaped(port)}"'


def _labels_of_endpoint(about: bytes) -> str:
    name, _, endpoint = about.partition(_BETWEEN)
    return f'{_labels_of_service(name)},endpoint="{endpoint.decode()}"'


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


SERVICES = SeriesNames(
    NAME,
    "New connections to the addresses and node ports of a service port, answered or not",
    OTHERS,
    "The same of the service ports that have no series",
    _labels_of_service,
)
ENDPOINTS = SeriesNames(
    ENDPOINT_NAME,
    "How often an endpoint of a service port was picked for a new connection",
    OTHER_ENDPOINTS,
    "The same of the endpoints that have no series",
    _labels_of_endpoint,
)
