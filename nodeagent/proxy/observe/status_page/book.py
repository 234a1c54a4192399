"""Keeps the state of each service after the passes, with the revision of its change, so that a watcher receives only changes."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from nodeagent.model.addresses import Family, endpoint_text, unpack_address
from nodeagent.model.frontend import Frontend, FrontendKind, ServiceState, have_same_places
from nodeagent.model.names import ObjectKey
from nodeagent.model.reports import KernelCounts, PassReport

FrontendKey = tuple[Family, str | None, int, int]
"""Family, address (None: a node port), protocol, port."""

_GONE_KEPT = 1000
"""Deleted services to remember: a watcher that was away for longer asks for all of them anyway."""


class Row(Struct, frozen=True, array_like=True):
    """A service in the list. places: the number of addresses and node ports."""

    name: str
    address: str
    places: int
    endpoints: int
    connections: int
    state: str


class ServiceBook:
    """Listens to passes."""

    def __init__(self) -> None:
        self._states: dict[ObjectKey, ServiceState] = {}
        self._revisions: dict[ObjectKey, int] = {}
        self._gone: deque[ObjectKey] = deque()
        self._owners: dict[FrontendKey, ObjectKey] = {}
        self._counts: dict[FrontendKey, int] = {}
        self._connections: dict[ObjectKey, int] = {}
        self._unserved: set[ObjectKey] = set()
        self.revision = 0

    def passed(self, report: PassReport) -> None:
        if not report.changed:
            return
        self.revision += 1
        for key, state in report.changed.items():
            self._revisions[key] = self.revision
            before = self._states.get(key)
            self._unserved.discard(key)
            if before is None or state is None or not have_same_places(before.frontends, state.frontends):
                self._replace_places(key, before, state)
            if state is None:
                self._states.pop(key, None)
                self._connections.pop(key, None)
                self._gone.append(key)
            else:
                self._states[key] = state
                for one in state.frontends:
                    if not one.route.backends:
                        self._unserved.add(key)
        while len(self._gone) > _GONE_KEPT:
            gone = self._gone.popleft()
            if gone not in self._states:
                self._revisions.pop(gone, None)

    def _replace_places(self, key: ObjectKey, before: ServiceState | None, state: ServiceState | None) -> None:
        for one in () if before is None else before.frontends:
            self._owners.pop(_key_of(one), None)
        for one in () if state is None else state.frontends:
            self._owners[_key_of(one)] = key
        if state is not None:
            self._connections[key] = self._connections_of(state)

    @property
    def counts(self) -> Mapping[FrontendKey, int]:
        """The last counts; never changed, only replaced."""
        return self._counts

    def counted(self, latest: dict[FrontendKey, int], changed: Iterable[FrontendKey]) -> None:
        """Takes in the kernel's counts, and the frontends whose count changed."""
        self._counts = latest
        keys = {key for place in changed if (key := self._owners.get(place)) is not None}
        self.revision += bool(keys)
        for key in keys:
            self._connections[key] = self._connections_of(self._states[key])
            self._revisions[key] = self.revision

    @property
    def services(self) -> int:
        """The number of services."""
        return len(self._states)

    @property
    def unserved(self) -> frozenset[str]:
        """The services with an address or node port here that has no endpoint in use, by `namespace/name`."""
        return frozenset(map(str, self._unserved))

    @property
    def connections(self) -> int:
        """The connections to all services."""
        return sum(self._connections[key] for key in self._states)

    def all_rows(self) -> Iterator[Row]:
        """Yields every service that exists when the iteration begins."""
        for key, state in list(self._states.items()):
            yield self._row(key, state)

    def rows(self, since: int) -> list[Row]:
        """Returns the services that changed after a revision. A deleted one has the state `gone`."""
        changed = [key for key, revision in self._revisions.items() if revision > since]
        return [
            Row(str(key), "", 0, 0, 0, "gone") if (state := self._states.get(key)) is None else self._row(key, state)
            for key in changed
        ]

    def frontends(self, name: str) -> Iterator[tuple[Frontend, int | None]]:
        """Yields, for a service by `namespace/name`, each frontend and its number of connections."""
        namespace, _, bare = name.partition("/")
        state = self._states.get(ObjectKey(namespace, bare))
        for frontend in () if state is None else state.frontends:
            yield frontend, self._counts.get(_key_of(frontend))

    def _connections_of(self, state: ServiceState) -> int:
        return sum(self._counts.get(_key_of(one), 0) for one in state.frontends)

    def _row(self, key: ObjectKey, state: ServiceState) -> Row:
        endpoints = _endpoints(state.frontends)
        condition = (
            "problem"
            if state.problems
            else "ok"
            if endpoints
            else "no endpoints"
            if state.frontends
            else "nothing here"
        )
        first = next((one for one in state.frontends if one.kind is FrontendKind.CLUSTER_IP), None)
        address = "" if first is None else f"{first.address}:{first.port}"
        return Row(str(key), address, len(state.frontends), endpoints, self._connections.get(key, 0), condition)


def _endpoints(frontends: Collection[Frontend]) -> int:
    """Counts distinct endpoints; frontends of a port share their route."""
    routes = {id(one.route): one.route for one in frontends}
    if len(routes) == 1:
        return sum(len(route.backends) for route in routes.values())
    return len({(one.address, one.port) for route in routes.values() for one in route.backends})


def compare(
    counts: KernelCounts, before: Mapping[FrontendKey, int]
) -> tuple[dict[FrontendKey, int], list[FrontendKey]]:
    """Returns connections by place, and the places whose count changed."""
    latest = {
        (found.family, *_place(key)): connections
        for found in counts.frontends
        for key, (connections, _) in found.by_key.items()
    }
    return latest, [place for place, connections in latest.items() if before.get(place, 0) != connections]


def picks_of_service(counts: KernelCounts, service: bytes) -> dict[str, dict[str, int]]:
    """Returns how often the endpoints of a service's ports were picked, by name of the port and by place. service: `namespace/name`."""
    found: dict[str, dict[str, int]] = {}
    for counted in counts.endpoints:
        for (name, endpoint), times in counted.by_endpoint.items():
            if name.startswith(service) and name.partition(b":")[0] == service:
                address, port = endpoint[:-4], int.from_bytes(endpoint[-4:-2], "big")
                by_place = found.setdefault(name.decode(errors="replace"), {})
                by_place[endpoint_text(unpack_address(address), port)] = times
    return found


def _key_of(frontend: Frontend) -> FrontendKey:
    return frontend.family, frontend.address, int(frontend.protocol), frontend.port


def _place(key: bytes) -> tuple[str | None, int, int]:
    """Returns address, protocol and port of a key: each padded to four bytes, the address first if it has one."""
    return (
        unpack_address(key[:-8]) if key[:-8] else None,
        key[-8],
        int.from_bytes(key[-4:-2], "big"),
    )
