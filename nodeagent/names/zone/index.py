"""The latest Services, by name and by address."""

from collections.abc import Iterable, Iterator

from nodeagent.model.names import ObjectKey
from nodeagent.names.zone.service_names import EndpointGroup, NamedPort, ServiceNames

LARGE_SERVICE = 32
"""With this many endpoints a Service indexes them by name; with fewer a search costs less."""


class ServiceEntry:
    """One Service and what is known of its names."""

    __slots__ = ("_by_host", "names", "prepared")

    def __init__(self, names: ServiceNames) -> None:
        self.names = names
        self.prepared: list[bytes] = []
        """Questions whose prepared answers come from this Service."""
        self._by_host: dict[str, list[tuple[str, EndpointGroup]]] | None = None

    def addresses(self) -> Iterator[str]:
        """Yields the address of every ready endpoint, with repetitions."""
        for group in self.names.groups:
            yield from group.addresses

    def endpoints_named(self, host: str) -> list[tuple[str, EndpointGroup]]:
        """Returns address and slice of each endpoint with this name (lower case)."""
        if self._by_host is not None:
            return self._by_host.get(host, [])
        groups = self.names.groups
        if sum(len(group.addresses) for group in groups) < LARGE_SERVICE:
            return [(address, group) for group in groups for name, address in group.endpoints() if name == host]
        self._by_host = {}
        for group in groups:
            for name, address in group.endpoints():
                self._by_host.setdefault(name, []).append((address, group))
        return self._by_host.get(host, [])

    def every_port(self) -> Iterator[NamedPort]:
        """Yields the ports that names below the Service may have: its own, or those of its slices if it is headless."""
        if self.names.headless:
            for group in self.names.groups:
                yield from group.ports
        else:
            yield from self.names.ports


class Index:
    """Services, namespaces and pods by what questions contain."""

    def __init__(self) -> None:
        self._services: dict[tuple[bytes, bytes], ServiceEntry] = {}
        self._namespaces: frozenset[bytes] = frozenset()
        self._services_of: dict[bytes, int] = {}
        self._by_cluster_ip: dict[str, tuple[ServiceEntry, ...]] = {}
        self._by_endpoint: dict[str, tuple[ServiceEntry, ...]] = {}
        self._pods: dict[str, frozenset[bytes]] = {}

    def __len__(self) -> int:
        return len(self._services)

    def entries(self) -> Iterable[ServiceEntry]:
        return self._services.values()

    def find(self, namespace: bytes, name: bytes) -> ServiceEntry | None:
        """Returns the Service with these labels (lower case), or None."""
        return self._services.get((namespace, name))

    def has_namespace(self, namespace: bytes) -> bool:
        return namespace in self._namespaces or namespace in self._services_of

    def has_pod(self, namespace: bytes, address: str) -> bool:
        """Returns whether a running pod of this namespace has the address."""
        return namespace in self._pods.get(address, ())

    def namespace_at(self, address: str) -> bytes | None:
        """Returns the namespace of the pod with this address; None if unknown, or shared by several namespaces."""
        namespaces = self._pods.get(address, frozenset())
        return next(iter(namespaces)) if len(namespaces) == 1 else None

    def at_cluster_ip(self, address: str) -> ServiceEntry | None:
        """Returns the Service with this ClusterIP; if several claim it, the first by name."""
        entries = self._by_cluster_ip.get(address, ())
        return min(entries, key=lambda entry: entry.names.key) if len(entries) > 1 else (entries or (None,))[0]

    def at_endpoint(self, address: str) -> tuple[ServiceEntry, ...]:
        """Returns the Services that have a ready endpoint with this address."""
        return self._by_endpoint.get(address, ())

    def put(self, names: ServiceNames) -> ServiceEntry | None:
        """Stores the latest state of a Service. Returns the entry that it replaces, None for a new Service."""
        replaced = self.remove(names.key)
        entry = ServiceEntry(names)
        namespace = names.namespace.encode()
        self._services[namespace, names.name.encode()] = entry
        self._services_of[namespace] = self._services_of.get(namespace, 0) + 1
        for address in names.cluster_ips:
            _add(self._by_cluster_ip, address, entry)
        for address in dict.fromkeys(entry.addresses()):
            _add(self._by_endpoint, address, entry)
        return replaced

    def remove(self, key: ObjectKey) -> ServiceEntry | None:
        """Removes a Service. Returns its entry, or None if it was unknown."""
        namespace = key.namespace.encode()
        entry = self._services.pop((namespace, key.name.encode()), None)
        if entry is None:
            return None
        left = self._services_of[namespace] - 1
        if left:
            self._services_of[namespace] = left
        else:
            del self._services_of[namespace]
        for address in entry.names.cluster_ips:
            _discard(self._by_cluster_ip, address, entry)
        for address in set(entry.addresses()):
            _discard(self._by_endpoint, address, entry)
        return entry

    def set_namespaces(self, names: Iterable[str]) -> None:
        """Sets the existing namespaces; those of Services exist in any case."""
        self._namespaces = frozenset(name.encode() for name in names)

    def put_pods(self, pods: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Sets for each address the namespaces of the running pods that have it."""
        for address, namespaces in pods:
            here = frozenset(namespace.encode() for namespace in namespaces)
            if here:
                self._pods[address] = here
            else:
                self._pods.pop(address, None)


def _add(table: dict[str, tuple[ServiceEntry, ...]], address: str, entry: ServiceEntry) -> None:
    table[address] = (*table.get(address, ()), entry)


def _discard(table: dict[str, tuple[ServiceEntry, ...]], address: str, entry: ServiceEntry) -> None:
    others = tuple(other for other in table.get(address, ()) if other is not entry)
    if others:
        table[address] = others
    else:
        table.pop(address, None)
