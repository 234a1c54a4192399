"""Feeds the store from a directory of manifests.

Changes are noticed through inotify, within a tenth of a second, and by checking time stamps every `poll_seconds`: that is for what
inotify does not report (a link whose target is edited elsewhere, a network file system, the directory itself replaced). Reading and
parsing happen in a thread. Every failure after the first reading is a Problem; the last good state stays in effect.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from watchfiles import awatch

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR, StoredObject
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.manifests.manifest_directory import (
    DirectoryIdentity,
    ManifestDirectory,
    Reading,
    unreadable_directory,
)
from nodeagent.proxy.source.manifests.manifest_error import ManifestError
from nodeagent.proxy.source.manifests.manifest_world import World, changes_between
from nodeagent.proxy.source.namespaces import NamespaceNames

PROBLEM_SOURCE = "manifests"
QUIET_MS = 50
PATIENCE_MS = 500

PAGE = 1000
T = TypeVar("T", bound=StoredObject)
T_contra = TypeVar("T_contra", bound=StoredObject, contravariant=True)

logger = logging.getLogger(__name__)


class ObjectListing(Protocol[T_contra]):
    """A full list that is delivered page by page."""

    def add(self, objects: Iterable[T_contra]) -> None: ...

    def commit(self) -> None: ...


class ObjectSink(Protocol):
    """Receives the objects."""

    def listing(self, kind: type[T]) -> ObjectListing[T]:
        """Begins a full list: its `commit` replaces all objects of this kind."""
        ...

    def put(self, obj: StoredObject) -> None: ...

    def remove(self, kind: type[StoredObject], key: ObjectKey) -> None: ...

    def report(self, source: str, problems: Iterable[Problem]) -> None:
        """Replaces what this source has reported so far."""
        ...


class ManifestSource:
    """Feeds `store` from the manifests in `directory` (`manifest_directory` says which files those are).

    node_name: the Node object of this name goes to the store, others do not.
    poll_seconds: how often time stamps are checked while inotify is silent. namespaces: receives the present ones.
    """

    def __init__(
        self,
        directory: Path,
        store: ObjectSink,
        *,
        node_name: str,
        poll_seconds: float = 1.0,
        namespaces: NamespaceNames | None = None,
    ) -> None:
        self._root = directory
        self._directory = ManifestDirectory(directory, node_name)
        self._store = store
        self._poll_seconds = poll_seconds
        self._namespaces = namespaces
        self._world = World()
        self._problems: tuple[Problem, ...] = ()

    @property
    def following(self) -> tuple[()]:
        """Empty: there is no server to follow."""
        return ()

    async def run(self) -> None:
        """Puts the first full lists into the store, then every change, until cancelled.

        Raises ManifestError if the directory cannot be read at the start; nothing is in the store then.
        """
        try:
            reading = await asyncio.to_thread(self._directory.read)
        except OSError as error:
            raise ManifestError(f"manifest directory {self._root}: {error.strerror or error}") from error
        await self._begin(reading)
        while True:
            places = reading.places
            async with aclosing(self._occasions(places)) as occasions:
                async for _ in occasions:
                    reading = await self._read()
                    await self._follow(reading)
                    if reading.places != places:
                        break

    async def _read(self) -> Reading:
        try:
            return await asyncio.to_thread(self._directory.read)
        except OSError as error:
            return Reading(self._world, problems=(unreadable_directory(self._root, error),))

    async def _occasions(self, places: frozenset[DirectoryIdentity]) -> AsyncGenerator[None, None]:
        """Yields whenever it is worth reading again. Without `places` there is nothing to watch, and it yields periodically."""
        if places:
            try:
                changes = awatch(
                    *(path for path, _, _ in places),
                    watch_filter=None,
                    step=QUIET_MS,
                    debounce=PATIENCE_MS,
                    rust_timeout=int(self._poll_seconds * 1000),
                    yield_on_timeout=True,
                    recursive=False,
                )
                async with aclosing(changes):
                    async for _ in changes:
                        yield
            except* (OSError, RuntimeError) as failed:
                # watchfiles raises RuntimeError for some errors of the system, and if it cannot start its thread.
                logger.warning("manifest watch failed, polling directory=%s error=%s", self._root, failed.exceptions[0])
        while True:
            await asyncio.sleep(self._poll_seconds)
            yield

    async def _begin(self, reading: Reading) -> None:
        """Delivers the first full lists. Slices come before the services that use them."""
        world = reading.world
        self._update_namespaces(world)
        await self._hand_over(Node, world.nodes)
        await self._hand_over(ServiceCIDR, world.service_cidrs)
        await self._hand_over(EndpointSlice, world.slices)
        await self._hand_over(Service, world.services)
        self._world = world
        self._report(reading)

    async def _hand_over(self, kind: type[T], objects: Mapping[ObjectKey, T]) -> None:
        """Delivers a list in pages, because 10,000 objects at once would block the loop for 0.1 s."""
        listing = self._store.listing(kind)
        remaining = iter(objects.values())
        while page := list(islice(remaining, PAGE)):
            listing.add(page)
            await asyncio.sleep(0)
        listing.commit()

    async def _follow(self, reading: Reading) -> None:
        """Applies what changed, without yielding to the loop in between: no pass sees half a change."""
        if reading.world is not self._world:
            changes = await asyncio.to_thread(changes_between, self._world, reading.world)
            for kind, key in changes.removals:
                self._store.remove(kind, key)
            for obj in changes.puts:
                self._store.put(obj)
            self._world = reading.world
            self._update_namespaces(self._world)
        self._report(reading)

    def _update_namespaces(self, world: World) -> None:
        if self._namespaces is not None:
            self._namespaces.replace(world.namespaces)

    def _report(self, reading: Reading) -> None:
        problems = (*reading.problems, *reading.world.problems)
        if problems != self._problems:
            self._store.report(PROBLEM_SOURCE, problems)
            self._problems = problems
