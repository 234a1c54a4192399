"""Holds the latest objects, and notifies a listener of changes.

Decided here: which objects count at all (selectors of the watch are checked again, since a server may refuse them and
manifests have none), and what is a change. Not decided here: what a change leads to.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, Protocol, TypeVar, cast

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    EndpointSlice,
    Node,
    Service,
    ServiceCIDR,
    StoredObject,
    is_headless_slice,
    is_of_other_proxy,
    is_of_service,
    key_of,
    service_of,
)
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.retention import Retention, T, unchanged

K = TypeVar("K", bound=StoredObject)

_STORED: frozenset[type] = frozenset({Service, EndpointSlice, Node, ServiceCIDR})


class ChangeListener(Protocol):
    """Called after the store holds the new state, from the event loop; must not block or raise. A class that inherits from it
    needs only the methods that it uses."""

    def service_changed(self, key: ObjectKey) -> None:  # noqa: ARG002 - by default it is ignored
        """The Service, or a slice that carries (or carried) its name, was added, changed or deleted."""
        return

    def node_changed(self) -> None:
        return

    def service_cidrs_changed(self) -> None:
        return

    def synced(self) -> None:
        """Both first full lists, Services and EndpointSlices, are in the store. Called once."""
        return

    def all_listed(self) -> None:
        """The Node and the ServiceCIDRs have been listed too, even if there are none of them. Called once, later."""
        return


class ClusterStore:
    """Implements `nodeagent.model.snapshot.Snapshot` over what sources deliver.

    for_names: also hold objects that have DNS names and are not proxied here: headless Services, slices with the label for that, and
    Services of other proxies. Translation leaves them out.
    on_change: called for each Service and EndpointSlice that changed, with the Service's key.
    on_problems: called with all problems after each report, because a problem of a source may change no object.
    """

    def __init__(
        self,
        listener: ChangeListener,
        *,
        for_names: bool = False,
        on_change: Callable[[type[StoredObject], ObjectKey], None] = lambda kind, service: None,  # noqa: ARG005
        on_problems: Callable[[tuple[Problem, ...]], None] = lambda problems: None,  # noqa: ARG005
    ) -> None:
        self._listener = listener
        self._on_change = on_change
        self._on_problems = on_problems
        self._for_names = for_names
        self._retention = Retention(for_names=for_names)
        self._services: dict[ObjectKey, Service] = {}
        self._slices: dict[ObjectKey, EndpointSlice] = {}
        self._slices_by_service: dict[ObjectKey, tuple[EndpointSlice, ...]] = {}
        self._node: Node | None = None
        self._node_gone = False
        self._service_cidrs: dict[ObjectKey, ServiceCIDR] = {}
        self._listed: set[type] = set()
        self._restored: set[type] = set()
        self._version = 0
        self._synced = False
        self._all_listed = False
        self._problems_by_source: dict[str, tuple[Problem, ...]] = {}

    @property
    def services(self) -> Mapping[ObjectKey, Service]:
        return self._services

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        return self._slices_by_service.get(service, ())

    def strays(self) -> list[ObjectKey]:
        """Returns the keys of Services that slices name but that are not held, in order."""
        return sorted(self._slices_by_service.keys() - self._services.keys())

    @property
    def node(self) -> Node | None:
        """The last Node seen; a deletion of the Node object does not remove it (as in kube-proxy)."""
        return self._node

    @property
    def node_gone(self) -> bool:
        """Whether the source reported that the Node object does not exist; False before the first report."""
        return self._node_gone

    @property
    def service_cidrs(self) -> Collection[ServiceCIDR]:
        return tuple(self._service_cidrs.values())

    def uid_of(self, kind: str, key: ObjectKey) -> str | None:
        """Returns the uid of an object that is held, by the name of its kind; None if it is not held or has no uid."""
        held: Mapping[str, Mapping[ObjectKey, StoredObject]] = {
            "Service": self._services,
            "EndpointSlice": self._slices,
            "ServiceCIDR": self._service_cidrs,
        }
        found = held.get(kind, {}).get(key)
        return found.metadata.uid or None if found is not None else None

    @property
    def is_synced(self) -> bool:
        """Whether Services and EndpointSlices have both been listed in full once. Node and ServiceCIDRs are not waited for."""
        return self._synced

    @property
    def is_current(self) -> bool:
        """Whether the source has listed all kinds, so that nothing that is held is of an earlier state."""
        return self._listed >= _STORED

    @property
    def restored(self) -> tuple[str, ...]:
        """The kinds of which an earlier state is held, because the source has not listed them yet; sorted."""
        return tuple(sorted(kind.__name__ for kind in self._restored - self._listed))

    @property
    def version(self) -> int:
        """A number that grows with each change of what is held."""
        return self._version

    def held(self, kind: type[T]) -> list[T]:
        """Returns all objects of this kind, in no order."""
        if kind is Node:
            return cast("list[T]", [] if self._node is None else [self._node])
        by_kind: Mapping[type, Mapping[ObjectKey, StoredObject]] = {
            Service: self._services,
            EndpointSlice: self._slices,
            ServiceCIDR: self._service_cidrs,
        }
        return cast("list[T]", list(by_kind[kind].values()))

    @property
    def counts(self) -> dict[str, int]:
        """How many objects are held, by the name of their kind."""
        return {
            "Service": len(self._services),
            "EndpointSlice": len(self._slices),
            "Node": 0 if self._node is None else 1,
            "ServiceCIDR": len(self._service_cidrs),
        }

    @property
    def awaited(self) -> tuple[str, ...]:
        """The kinds of objects that have not been listed yet, of those that the first pass needs."""
        return tuple(kind.__name__ for kind in (Service, EndpointSlice, Node, ServiceCIDR) if kind not in self._listed)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What all sources reported, sorted."""
        return tuple(sorted(problem for problems in self._problems_by_source.values() for problem in problems))

    def report(self, source: str, problems: Iterable[Problem]) -> None:
        """Replaces what this source has reported so far; sources are distinguished by name."""
        reported = tuple(problems)
        if reported:
            self._problems_by_source[source] = reported
        else:
            self._problems_by_source.pop(source, None)
        self._on_problems(self.problems)

    def listing(self, kind: type[T]) -> "Listing[T]":
        """Starts collecting a full list page by page; nothing changes before its `commit`."""
        return Listing(self, kind, self._retention)

    def replace(self, kind: type[T], objects: Iterable[T]) -> None:
        """Replaces all objects of this kind: those that are held and not in `objects` count as deleted."""
        listing = self.listing(kind)
        listing.add(objects)
        listing.commit()

    def put(self, obj: StoredObject) -> None:
        """Stores the object as the latest version. One that is filtered out counts as deleted."""
        if not self.admits(obj):
            self.remove(type(obj), key_of(obj))
        elif isinstance(obj, EndpointSlice):
            self._put_slice(key_of(obj), self._retention.retain(obj))
        elif isinstance(obj, Node):
            self._put_node(self._retention.retain(obj))
        elif isinstance(obj, Service):
            self._update_services({key_of(obj): self._retention.retain(obj)}, ())
        else:
            self._update_service_cidrs({key_of(obj): self._retention.retain(obj)}, ())

    def remove(self, kind: type[T], key: ObjectKey) -> None:
        """Removes an object that was deleted; a key that is not held is no change."""
        if kind is Service:
            self._update_services({}, (key,))
        elif kind is EndpointSlice:
            self._update_slices({}, (key,))
        elif kind is ServiceCIDR:
            self._update_service_cidrs({}, (key,))
        elif self._node is not None and key == key_of(self._node):
            self._node_gone = True

    def admits(self, obj: StoredObject) -> bool:
        """Returns whether the agent uses this object."""
        if isinstance(obj, EndpointSlice):
            return is_of_service(obj) and (self._for_names or not is_headless_slice(obj))
        if isinstance(obj, Service):
            return self._for_names or not (is_of_other_proxy(obj) or obj.spec.cluster_ip == "None")
        return True

    def commit(self, listing: "Listing[T]") -> None:
        """Makes a finished listing the state (called by `Listing.commit`)."""
        self._take_over(listing)
        self._count_as_listed(listing.kind)

    def _take_over(self, listing: "Listing[T]") -> None:
        if listing.kind is Service:
            services = cast("dict[ObjectKey, Service]", listing.objects)
            self._update_services(services, self._services.keys() - services.keys())
        elif listing.kind is EndpointSlice:
            slices = cast("dict[ObjectKey, EndpointSlice]", listing.objects)
            self._update_slices(slices, self._slices.keys() - slices.keys())
        elif listing.kind is ServiceCIDR:
            cidrs = cast("dict[ObjectKey, ServiceCIDR]", listing.objects)
            self._update_service_cidrs(cidrs, self._service_cidrs.keys() - cidrs.keys())
        else:
            self._node_gone = not listing.objects
            for node in cast("dict[ObjectKey, Node]", listing.objects).values():
                self._put_node(node)

    def unavailable(self, kind: type[T]) -> None:
        """Called if the source cannot list this kind. Held objects stay; the Node and ServiceCIDRs
        are not waited for, Services and EndpointSlices always are."""
        if kind is Node or kind is ServiceCIDR:
            self._count_as_listed(kind)

    def restore(self, listings: Iterable["Listing[StoredObject]"]) -> None:
        """Takes an earlier state of all kinds as the state until the source lists them. A kind that it has listed stays."""
        for listing in listings:
            if listing.kind not in self._listed:
                if listing.objects:  # an empty list of an earlier state says nothing about the present
                    self._take_over(listing)
                self._restored.add(listing.kind)
        self._announce()

    def _count_as_listed(self, kind: type[T]) -> None:
        self._listed.add(kind)
        self._announce()

    def _announce(self) -> None:
        """Calls the listener when the first complete state is held, listed or restored."""
        known = self._listed | self._restored
        if not self._synced and {Service, EndpointSlice} <= known:
            self._synced = True
            self._listener.synced()
        if self._synced and not self._all_listed and {Node, ServiceCIDR} <= known:
            self._all_listed = True
            self._listener.all_listed()

    def _put_node(self, node: Node) -> None:
        self._node_gone = False
        if self._node is None or not unchanged(self._node, node):
            self._node = node
            self._version += 1
            self._listener.node_changed()

    def _update_services(self, puts: Mapping[ObjectKey, Service], deletes: Iterable[ObjectKey]) -> None:
        before = _update(self._services, puts, deletes)
        self._version += bool(before)
        for key in before:
            self._on_change(Service, key)
            self._listener.service_changed(key)

    def _update_service_cidrs(self, puts: Mapping[ObjectKey, ServiceCIDR], deletes: Iterable[ObjectKey]) -> None:
        if _update(self._service_cidrs, puts, deletes):
            self._version += 1
            self._listener.service_cidrs_changed()

    def _put_slice(self, key: ObjectKey, latest: EndpointSlice) -> None:
        """Updates one slice. Nearly always it stays with its service, and nothing else has to be looked at."""
        held, service = self._slices.get(key), service_of(latest)
        if held is None or service is None or held.metadata.labels != latest.metadata.labels:
            self._update_slices({key: latest}, ())
            return
        if unchanged(held, latest):
            return
        self._slices[key] = latest
        siblings = self._slices_by_service[service]
        self._slices_by_service[service] = tuple([latest if one is held else one for one in siblings])
        self._version += 1
        self._on_change(EndpointSlice, service)
        self._listener.service_changed(service)

    def _update_slices(self, puts: Mapping[ObjectKey, EndpointSlice], deletes: Iterable[ObjectKey]) -> None:
        changed: defaultdict[ObjectKey, dict[str, EndpointSlice | None]] = defaultdict(dict)
        before = _update(self._slices, puts, deletes)
        self._version += bool(before)
        for key, held in before.items():
            latest = self._slices.get(key)
            service_now = service_of(latest) if latest is not None else None
            if held is not None and (latest is None or held.metadata.labels != latest.metadata.labels):
                service_before = service_of(held)
                if service_before is not None and service_before != service_now:
                    changed[service_before][key.name] = None
            if service_now is not None:
                changed[service_now][key.name] = latest
        for service, slices in changed.items():
            for _ in slices:
                self._on_change(EndpointSlice, service)
            self._reindex(service, slices)
        for service in changed:
            self._listener.service_changed(service)

    def _reindex(self, service: ObjectKey, changed: Mapping[str, EndpointSlice | None]) -> None:
        """Updates the slices of one service; None: no longer one of its slices."""
        held = self._slices_by_service.get(service, ())
        slices = [known for known in held if known.metadata.name not in changed]
        slices += [latest for latest in changed.values() if latest is not None]
        if len(slices) > 1:
            slices.sort(key=lambda known: known.metadata.name)
        if slices:
            self._slices_by_service[service] = tuple(slices)
        else:
            self._slices_by_service.pop(service, None)


class Listing(Generic[T]):
    """A full list of one kind under construction.

    Objects are reduced to their stored form as each page arrives: neither the memory nor the time of a long list is spent at one moment.
    """

    def __init__(self, store: ClusterStore, kind: type[T], retention: Retention) -> None:
        self.kind = kind
        self.objects: dict[ObjectKey, T] = {}
        self._store = store
        self._retention = retention

    def add(self, objects: Iterable[T]) -> None:
        for obj in objects:
            if self._store.admits(obj):
                self.objects[key_of(obj)] = self._retention.retain(obj)

    def discard(self, key: ObjectKey) -> None:
        """Removes an object that was deleted while the list was being delivered."""
        self.objects.pop(key, None)

    def commit(self) -> None:
        """Compares with what the store holds, replaces that and notifies the listener. Call once."""
        self._store.commit(self)


def _update(
    held: dict[ObjectKey, K], puts: Mapping[ObjectKey, K], deletes: Iterable[ObjectKey]
) -> dict[ObjectKey, K | None]:
    """Applies the difference; returns the previous object for every key that really changed (None: it is new)."""
    before: dict[ObjectKey, K | None] = {}
    for key, latest in puts.items():
        previous = held.get(key)
        if previous is None or not unchanged(previous, latest):
            before[key] = previous
            held[key] = latest
    for key in deletes:
        gone = held.pop(key, None)
        if gone is not None:
            before[key] = gone
    return before
