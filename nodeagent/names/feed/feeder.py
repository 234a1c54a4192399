"""Turns the agent's objects into messages about names: a full state first, then changes.

Decided here: when a change is sent. Never before the pass that programmed it has been reported.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.snapshot import Snapshot
from nodeagent.names.feed import feed_messages as messages
from nodeagent.names.zone.service_names import ServiceNames, names_of
from nodeagent.names.zone.unservable import Fault, faults_of

PODS_IN_ONE = 500
LIST_PATIENCE_SECONDS = 5.0
"""How long a full state waits for the lists of namespaces and pods. We may not be allowed to list them: names must not
wait for ever."""


class RunningPods(Protocol):
    """Running pods by address."""

    listed: asyncio.Event

    @property
    def addresses(self) -> Collection[str]: ...

    def namespaces_at(self, address: str) -> tuple[str, ...]: ...


class Feeder:
    """Yields messages about the Services that passes have programmed.
    namespaces: returns all names, or None before they are listed. pods: None if pods are not followed. wall: Unix time
    in seconds, for SOA serials. on_problems: called with all objects that have no names, each time these change."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        wall: Callable[[], float],
        namespaces: Callable[[], Collection[str] | None] = lambda: (),
        pods: RunningPods | None = None,
        zones: Sequence[str] = ("cluster.local",),
        on_problems: Callable[[tuple[Problem, ...]], None] = lambda problems: None,  # noqa: ARG005
    ) -> None:
        self._snapshot = snapshot
        self._namespaces = namespaces
        self._pods = pods
        self._zones = zones
        self._on_problems = on_problems
        self._faults: dict[ObjectKey, tuple[Problem, ...]] = {}
        self._faults_changed = False
        self._nameless: set[ObjectKey] = set()
        self._changed_pods: set[str] = set()
        self._served: messages.Served | None = None
        self._served_changed = False
        self._wall = wall
        self._dirty: set[ObjectKey] = set()
        self._namespaces_changed = False
        self._namespaces_listed = asyncio.Event()
        self._sent_hashes: dict[ObjectKey, int] = {}
        self._complete = asyncio.Event()
        self._changed = asyncio.Event()

    def passed(self, keys: Collection[ObjectKey] | None) -> None:
        """Notes that a pass has programmed the Services of these keys; None: all Services."""
        if keys is None:
            self._dirty.update(self._snapshot.services)
            self._dirty.update(self._sent_hashes)
            self._complete.set()
        else:
            self._dirty.update(keys)
        if self._dirty:
            self._changed.set()

    def namespaces_changed(self) -> None:
        """Notes that namespaces were added or deleted; no packets depend on them."""
        self._namespaces_changed = True
        self._namespaces_listed.set()
        self._changed.set()

    def pods_changed(self, addresses: Collection[str]) -> None:
        """Notes that the pods at these addresses changed."""
        self._changed_pods.update(addresses)
        self._changed.set()

    def serve(self, served: messages.Served) -> None:
        """Sets whose queries are answered."""
        if served != self._served:
            self._served = served
            self._served_changed = True
            self._changed.set()

    async def everything(self) -> AsyncIterator[messages.ToProcess]:
        """Yields the full state, after the first pass was reported."""
        if self._served is not None:
            self._served_changed = False
            yield self._served
        await self._complete.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_PATIENCE_SECONDS):
                while self._namespaces() is None:
                    await self._namespaces_listed.wait()
                    self._namespaces_listed.clear()
                if self._pods is not None:
                    await self._pods.listed.wait()
        self._dirty.clear()
        self._sent_hashes.clear()
        for key in [key for key in self._faults if key not in self._snapshot.services]:
            self._set_faults(key, ())
        yield messages.Begin()
        yield self._all_namespaces()
        self._changed_pods.clear()
        for message in self._pods_at(tuple(self._pods.addresses) if self._pods is not None else ()):
            yield message
            await asyncio.sleep(0)
        for keys in _batches(tuple(self._snapshot.services)):
            services = tuple(self._names(keys))
            if services:
                yield messages.Put(services, self._serial())
            await asyncio.sleep(0)  # let other tasks run
        yield messages.End(self._serial())
        self._report()

    async def changes(self) -> AsyncIterator[messages.ToProcess]:
        """Yields each change as soon as it may be sent; never ends."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._namespaces_changed:
                self._namespaces_changed = False
                yield self._all_namespaces()
            if self._served_changed and self._served is not None:
                self._served_changed = False
                yield self._served
            pods, self._changed_pods = self._changed_pods, set()
            for message in self._pods_at(tuple(pods)):
                yield message
            dirty, self._dirty = self._dirty, set()
            gone = tuple(key for key in dirty if key not in self._snapshot.services)
            for keys in (gone, *_batches(tuple(dirty.difference(gone)))):
                services = tuple(self._names(keys))
                removed = tuple(
                    key for key in keys if key in self._nameless and self._sent_hashes.pop(key, None) is not None
                )
                if removed:
                    yield messages.Remove(removed, self._serial())
                self._nameless.difference_update(gone)
                if services:
                    yield messages.Put(services, self._serial())
            self._report()

    def _names(self, keys: Collection[ObjectKey]) -> Iterator[ServiceNames]:
        """Yields the names of those Services whose names changed since they were last sent."""
        for key in keys:
            service = self._snapshot.services.get(key)
            if service is None:
                self._nameless.add(key)
                self._set_faults(key, ())
                continue
            slices = self._snapshot.slices_of(key)
            names = names_of(service, slices)
            faults = tuple(faults_of(service, slices, names, self._zones))
            self._set_faults(key, faults)
            if any(fault.whole for fault in faults):
                self._nameless.add(key)
                continue
            self._nameless.discard(key)
            digest = hash(names)
            if self._sent_hashes.get(key) != digest:
                self._sent_hashes[key] = digest
                yield names

    def _set_faults(self, key: ObjectKey, faults: tuple[Fault, ...]) -> None:
        """Sets the faults of one Service; replaces its earlier ones."""
        problems = tuple(Problem(f"Service {key}", fault.reason, f"cluster DNS: {fault.detail}") for fault in faults)
        if problems != self._faults.get(key, ()):
            self._faults_changed = True
            if problems:
                self._faults[key] = problems
            else:
                del self._faults[key]

    def _report(self) -> None:
        if self._faults_changed:
            self._faults_changed = False
            self._on_problems(tuple(problem for found in self._faults.values() for problem in found))

    def _pods_at(self, addresses: tuple[str, ...]) -> Iterator[messages.Pods]:
        """Yields the pods at these addresses, in messages of at most PODS_IN_ONE addresses."""
        if self._pods is None:
            return
        for start in range(0, len(addresses), PODS_IN_ONE):
            some = addresses[start : start + PODS_IN_ONE]
            yield messages.Pods(tuple((address, self._pods.namespaces_at(address)) for address in some), self._serial())

    def _all_namespaces(self) -> messages.Namespaces:
        return messages.Namespaces(tuple(self._namespaces() or ()), self._serial())

    def _serial(self) -> int:
        return int(self._wall())


def _batches(keys: tuple[ObjectKey, ...]) -> Iterator[tuple[ObjectKey, ...]]:
    for start in range(0, len(keys), messages.SERVICES_IN_ONE):
        yield keys[start : start + messages.SERVICES_IN_ONE]
