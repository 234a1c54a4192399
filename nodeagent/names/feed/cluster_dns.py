"""Cluster DNS from the agent's side: after each pass it sends the changed names to the DNS process."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from nodeagent.model.frontend import NamesHere
from nodeagent.model.name_counts import NameCounts
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport
from nodeagent.model.runtime_files import dns_socket
from nodeagent.model.snapshot import Snapshot
from nodeagent.names.feed import places_file
from nodeagent.names.feed.dns_supervisor import Supervisor
from nodeagent.names.feed.feed_messages import Report, Served, Settings
from nodeagent.names.feed.feeder import Feeder, RunningPods
from nodeagent.names.feed.meeting import request_end, running_settings, until_closed
from nodeagent.names.feed.sockets import ListenAddress, is_here
from nodeagent.names.feed.upstream_problems import upstream_problems
from nodeagent.names.served_clients import served_ranges
from nodeagent.names.upstream.upstream_address import Server, parse_server

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
FAILED_PASSES = 3
"""After this many failed passes in a row names are sent anyway: a failure of one IP family must not stop the other."""


def socket_path() -> Path:
    """Returns the path of the unix socket of this network namespace's DNS process."""
    return Path(dns_socket(Path("/proc/self/ns/net").stat().st_ino))


def listening_places(path: Path | None = None) -> tuple[Server, ...]:
    """Returns where the DNS process of this network namespace answers, as its agent wrote it; empty without a process."""
    path = path or socket_path()
    try:
        lines = places_file.read(path.with_suffix(".listen"))
    except OSError:
        return ()
    return tuple(map(parse_server, lines))


GIVING_BACK_SECONDS = 5.0
"""How long the agent waits for the pass that sends queries elsewhere; after that it ends in any case."""
ON_THEIR_WAY_SECONDS = 1.0
"""How long the process still answers queries that were sent before that pass."""
ENDING_SECONDS = 10.0
REMOVAL_TRIES = 20
BETWEEN_SECONDS = 0.01
"""Pause between the tries to remove the files. A running agent holds them locked: then they stay."""


class NodeNames:
    """Cluster DNS on this node: an observer of passes, and a task (`run`).
    settings: None if this agent does not answer names; then `run` ends the process of an earlier agent, if there is
    one. is_dirty: whether a Service changed since the last pass took it. pods: None if pods are not followed. clients,
    pod_ranges: see `served_ranges`. adopts: see `Supervisor`. changed: called after `here` changed."""

    def __init__(
        self,
        settings: Settings | None,
        snapshot: Snapshot,
        *,
        is_dirty: Callable[[ObjectKey], bool],
        namespaces: Callable[[], Collection[str] | None],
        pods: RunningPods | None = None,
        clients: Collection[str] = (),
        pod_ranges: Callable[[], Collection[str]] = tuple,
        adopts: bool = True,
        report: Callable[[Iterable[Problem]], None],
        changed: Callable[[], None] = lambda: None,
        path: Path | None = None,
    ) -> None:
        self._path = path or socket_path()
        self._is_dirty = is_dirty
        self._report = report
        self._changed = changed
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._programmed = asyncio.Event()
        self.here = NamesHere(() if settings is None else settings.listening)
        """The addresses to which queries are sent, and whether a process reads them."""
        self._feeder = Feeder(
            snapshot,
            wall=time.time,
            namespaces=namespaces,
            pods=pods,
            zones=settings.zones if settings is not None else (),
            on_problems=partial(self._take_problems, "names"),
        )
        self._clients = tuple(clients)
        self._pod_ranges = pod_ranges
        self._own_addresses: frozenset[str] | None = None
        self._pending: set[ObjectKey] = set()
        self._failed = 0
        self._complete = False
        self._given_back: asyncio.Event | None = None
        self._supervisor = None
        self._places: tuple[ListenAddress, ...] = ()
        self._counts = NameCounts()
        if settings is not None:
            self._places = tuple(ListenAddress(*place) for place in settings.listening)
            self._supervisor = Supervisor(
                self._path,
                self._places,
                settings,
                self._feeder,
                adopts=adopts,
                on_problems=partial(self._take_problems, "process"),
                on_report=self._take_report,
                on_answering=self._set_answering,
            )

    @property
    def counts(self) -> NameCounts:
        """The counters of the process, as of its last report; it reports about once a second."""
        return replace(self._counts, killed=0 if self._supervisor is None else self._supervisor.killed)

    def passed(self, report: PassReport) -> None:
        """Queues the names that the pass programmed; what it could not program waits for a later pass."""
        if report.ok:
            self._programmed.set()
            if self._given_back is not None and report.node.names == self.here:
                self._given_back.set()
        if self._supervisor is None:
            return
        self._queue_changed_names(report)
        self._serve()
        self._check_addresses()

    def _queue_changed_names(self, report: PassReport) -> None:
        self._pending |= report.dirty
        self._failed = 0 if report.ok else self._failed + 1
        if self._failed and (self._failed < FAILED_PASSES or not report.programmed):
            return
        # A Service that changed again during the pass is not programmed in its present form: the next pass queues it.
        keys = {key for key in self._pending if not self._is_dirty(key)}
        self._pending -= keys
        self._feeder.passed(keys if self._complete else None)
        self._complete = True

    def namespaces_changed(self) -> None:
        """Notes that namespaces were added or deleted."""
        self._feeder.namespaces_changed()

    def pods_changed(self, addresses: Collection[str]) -> None:
        """Notes that the pods at these addresses changed."""
        self._feeder.pods_changed(addresses)

    def node_addresses_changed(self, addresses: frozenset[str]) -> None:
        """Sets the node's own addresses."""
        self._own_addresses = addresses
        self._serve()

    def _serve(self) -> None:
        """Sends the ranges that are served. They may change with the Node, and each change of the Node leads to a pass."""
        if self._own_addresses is None:
            return
        ranges = served_ranges(self._clients, self._pod_ranges())
        self._feeder.serve(Served(ranges, tuple(sorted(self._own_addresses))))

    async def adopt(self) -> None:
        """Finds out whether the process of an earlier agent answers, so that the first pass leaves queries with it."""
        if self._supervisor is not None:
            await self._supervisor.adopt()
        elif (former := await running_settings(self._path)) is not None:
            self.here = NamesHere(former=former.listening)

    async def run(self) -> None:
        """Supervises the process, or ends an earlier agent's. Ends when cancelled, or when another agent took the
        process over."""
        for left in await asyncio.to_thread(places_file.sweep, self._path.with_suffix(".listen")):
            logger.info("removed %s, which an agent that was killed left behind", left)
        if self._supervisor is not None:
            await self._supervisor.run()
            return
        await self._programmed.wait()  # from here on queries go elsewhere
        connection = await self._end_former_process()
        if connection is not None:
            logger.info("ended the DNS process that a former configuration had")
            await until_closed(connection)
        if self.here != NamesHere():
            self.here = NamesHere()
            self._changed()

    async def give_back(self) -> None:
        """Sends queries elsewhere, and returns when the process has answered those already sent to it; then it may end.
        `run` and passes continue meanwhile. Returns at once if no process answers."""
        if not self.here.answering:
            return
        self._given_back = asyncio.Event()
        self.here = NamesHere(former=self.here.places)
        self._changed()
        try:
            async with asyncio.timeout(GIVING_BACK_SECONDS):
                await self._given_back.wait()
        except TimeoutError:
            logger.warning("queries could not be sent elsewhere before the DNS process ends")
            return
        await asyncio.sleep(ON_THEIR_WAY_SECONDS)

    async def _end_former_process(self) -> socket.socket | None:
        """As `request_end`, but retries on OSError, for example while no file can be opened."""
        while True:
            try:
                connection = await request_end(self._path)
            except OSError as error:
                problem = Problem(
                    "dns", "FormerProcess", f"cannot ask whether a former process answers: {error.strerror}"
                )
                self._take_problems("former", (problem,))
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                if "former" in self._problems:
                    self._take_problems("former", ())
                return connection

    def _check_addresses(self) -> None:
        """Reports a problem for each listening address that this node does not have: no client could reach it."""
        lost = sorted({address for address, _ in self.here.places if not is_here(address)})
        problems = tuple(
            Problem("dns", "AddressNotHere", f"{address} is not an address of this node: names are not answered there")
            for address in lost
        )
        self._take_problems("places", problems)

    def _take_problems(self, source: str, problems: tuple[Problem, ...]) -> None:
        self._problems[source] = problems
        self._report(tuple(problem for found in self._problems.values() for problem in found))

    def _set_answering(self, answering: bool) -> None:
        if self._given_back is None and answering is not self.here.answering:
            self.here = NamesHere(self.here.places, answering)
            self._changed()

    def _take_report(self, report: Report) -> None:
        self._counts = report.counts
        problems = tuple(upstream_problems(report.counts.upstream))
        if problems != self._problems.get("upstreams", ()):
            self._take_problems("upstreams", problems)


async def end_process() -> bool:
    """Ends the DNS process of this network namespace and removes its files. Returns whether there was a process."""
    path = socket_path()
    connection = await request_end(path)
    if connection is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await until_closed(connection)
    for _ in range(REMOVAL_TRIES):  # it releases them a moment after closing the connection
        if places_file.remove(path.with_suffix(".listen")):
            break
        await asyncio.sleep(BETWEEN_SECONDS)
    return connection is not None
