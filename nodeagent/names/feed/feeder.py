"""What the agent's objects say about names, as messages: all of it, and then what changed.

Decided here: when a change is sent. Never before the pass that programmed it has been reported.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.snapshot import Snapshot
from nodeagent.names.feed.feed_messages import (
    SERVICES_IN_ONE,
    Begin,
    End,
    Namespaces,
    Pods,
    Put,
    Remove,
    Served,
    ToProcess,
)
from nodeagent.names.zone.service_names import ServiceNames, names_of
from nodeagent.names.zone.unservable import Fault, faults_of

PODS_IN_ONE = 500
LIST_PATIENCE_SECONDS = 5.0
"""How long a full state waits for the lists of namespaces and of pods; nobody's names shall wait for what we may not list."""


class RunningPods(Protocol):
    """Who has which address."""

    listed: asyncio.Event

    @property
    def addresses(self) -> Collection[str]: ...

    def namespaces_at(self, address: str) -> tuple[str, ...]: ...


class Feeder:
    """Reads the latest objects for keys that passes have dealt with.

    namespaces: all there are, None while they are not known. pods: None when they are not followed.
    wall: Unix time in seconds, for SOA serials. on_problems: called with all objects that have no names, each time these change.
    """

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
        self._served: Served | None = None
        self._served_changed = False
        self._wall = wall
        self._dirty: set[ObjectKey] = set()
        self._namespaces_changed = False
        self._namespaces_came = asyncio.Event()
        self._told: dict[ObjectKey, int] = {}
        self._complete = asyncio.Event()
        self._changed = asyncio.Event()

    def passed(self, keys: Collection[ObjectKey] | None) -> None:
        """A pass has programmed the Services of these keys; None: all there are."""
        if keys is None:
            self._dirty.update(self._snapshot.services)
            self._dirty.update(self._told)
            self._complete.set()
        else:
            self._dirty.update(keys)
        if self._dirty:
            self._changed.set()

    def namespaces_changed(self) -> None:
        """Namespaces came or went; no packets depend on them."""
        self._namespaces_changed = True
        self._namespaces_came.set()
        self._changed.set()

    def pods_changed(self, addresses: Collection[str]) -> None:
        """Other pods than before run at these addresses."""
        self._changed_pods.update(addresses)
        self._changed.set()

    def serve(self, served: Served) -> None:
        """Whose queries are answered from now on."""
        if served != self._served:
            self._served = served
            self._served_changed = True
            self._changed.set()

    async def everything(self) -> AsyncIterator[ToProcess]:
        """The full state, once the first pass has been."""
        if self._served is not None:
            self._served_changed = False
            yield self._served
        await self._complete.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_PATIENCE_SECONDS):
                while self._namespaces() is None:
                    await self._namespaces_came.wait()
                    self._namespaces_came.clear()
                if self._pods is not None:
                    await self._pods.listed.wait()
        self._dirty.clear()
        self._told.clear()
        for key in [key for key in self._faults if key not in self._snapshot.services]:
            self._take_faults(key, ())
        yield Begin()
        yield self._all_namespaces()
        self._changed_pods.clear()
        for message in self._pods_at(tuple(self._pods.addresses) if self._pods is not None else ()):
            yield message
            await asyncio.sleep(0)
        for keys in _some_at_a_time(tuple(self._snapshot.services)):
            services = tuple(self._names(keys))
            if services:
                yield Put(services, self._serial())
            await asyncio.sleep(0)  # the agent has other work
        yield End(self._serial())
        self._report()

    async def changes(self) -> AsyncIterator[ToProcess]:
        """What changed, as soon as it may be known."""
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
            for keys in (gone, *_some_at_a_time(tuple(dirty.difference(gone)))):
                services = tuple(self._names(keys))
                removed = tuple(key for key in keys if key in self._nameless and self._told.pop(key, None) is not None)
                if removed:
                    yield Remove(removed, self._serial())
                self._nameless.difference_update(gone)
                if services:
                    yield Put(services, self._serial())
            self._report()

    def _names(self, keys: Collection[ObjectKey]) -> Iterator[ServiceNames]:
        """The names of those Services that say something else than they did."""
        for key in keys:
            service = self._snapshot.services.get(key)
            if service is None:
                self._nameless.add(key)
                self._take_faults(key, ())
                continue
            slices = self._snapshot.slices_of(key)
            names = names_of(service, slices)
            faults = tuple(faults_of(service, slices, names, self._zones))
            self._take_faults(key, faults)
            if any(fault.whole for fault in faults):
                self._nameless.add(key)
                continue
            self._nameless.discard(key)
            said = hash(names)
            if self._told.get(key) != said:
                self._told[key] = said
                yield names

    def _take_faults(self, key: ObjectKey, faults: tuple[Fault, ...]) -> None:
        """These are all of the Service now."""
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

    def _pods_at(self, addresses: tuple[str, ...]) -> Iterator[Pods]:
        """What runs at these addresses."""
        if self._pods is None:
            return
        for start in range(0, len(addresses), PODS_IN_ONE):
            some = addresses[start : start + PODS_IN_ONE]
            yield Pods(tuple((address, self._pods.namespaces_at(address)) for address in some), self._serial())

    def _all_namespaces(self) -> Namespaces:
        return Namespaces(tuple(self._namespaces() or ()), self._serial())

    def _serial(self) -> int:
        return int(self._wall())


def _some_at_a_time(keys: tuple[ObjectKey, ...]) -> Iterator[tuple[ObjectKey, ...]]:
    for start in range(0, len(keys), SERVICES_IN_ONE):
        yield keys[start : start + SERVICES_IN_ONE]
