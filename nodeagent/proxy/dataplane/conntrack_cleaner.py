"""Deletes stale UDP flows from the connection tracker, concurrently with the sync path.

A pass walks the table in a worker thread. The kernel filters: by protocol, and by destination if few places changed.
Flows are read as a stream and deleted in bounded batches, so memory does not depend on the size of the table
(kubernetes/kubernetes #129982: 12 GB for 7.5 million entries).
"""

import asyncio
import errno
import logging
import socket
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.backoff import Backoff
from nodeagent.model.frontend import UdpPort
from nodeagent.model.names import ServicePortName
from nodeagent.model.reports import CleaningReport
from nodeagent.proxy.dataplane.conntrack_list import listed_flows, read_flow_list
from nodeagent.proxy.dataplane.conntrack_size import flows_tracked, is_one_walk_faster
from nodeagent.proxy.dataplane.conntrack_stale import Targets, UdpLedger, packed_serving, targets_for
from nodeagent.proxy.dataplane.worker_thread import in_thread
from nodeagent.wire.netlink.conntrack import delete_flow, dump_udp, read_flows
from nodeagent.wire.netlink.framing import Request
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER

logger = logging.getLogger(__name__)

_SELECTED_WALKS = 8
"""A walk that the kernel filters by one place takes a tenth of the time of reading every UDP flow (measured)."""
_ATTEMPTS = 5
_DELETIONS_AT_A_TIME = 512
_INTERRUPTED = {errno.EINTR, errno.ENOBUFS}
_PACKED_AT_ONCE = 500
"""Endpoints of a service port; if there are more, a worker thread packs them for the comparison with flows."""
_REST_PER_WORK = 9
_LONGEST_REST_SECONDS = 0.4
"""A client that keeps its port waits for the pause and for the walk after it: together these stay below a second."""
_RETRY = Backoff(first_seconds=1.0, longest_seconds=60.0)


class CleaningListener(Protocol):
    """Receives the report of each pass of the cleaner."""

    def conntrack_cleaned(self, report: CleaningReport) -> None:
        """Called on the event loop after each pass."""
        ...


class ConntrackCleaner:
    """Takes UDP service ports as they change, and deletes their stale flows in its own time.

    local_addresses: canonical addresses of the node at which node ports may answer, until `node_addresses_changed`.
    After each pass the cleaner pauses nine times as long as the pass took, at most
    0.4 seconds: a client whose endpoint left may wait for this pause and the walk.
    """

    def __init__(
        self,
        listener: CleaningListener,
        *,
        local_addresses: Collection[str] = (),
        retry: Backoff = _RETRY,
    ) -> None:
        self._local_addresses = frozenset(local_addresses)
        self._listener = listener
        self._retry = retry
        self._ledger = UdpLedger()
        self._big: dict[tuple[ServicePortName, Family], UdpPort] = {}
        self._wanted = asyncio.Event()

    def submit(self, udp_ports: Iterable[UdpPort]) -> None:
        """Takes service ports as they are programmed now; unchanged ones cost nothing. Never blocks.

        Call it after the commit. A port that was deleted is passed once more with an empty `serving`.
        """
        for udp_port in udp_ports:
            self._big.pop((udp_port.service_port, udp_port.family), None)
            if len(udp_port.serving) > _PACKED_AT_ONCE:
                self._big[udp_port.service_port, udp_port.family] = udp_port
            else:
                self._ledger.note(udp_port)
        if self._ledger.changed or self._big:
            self._wanted.set()

    def look_again(self, family: Family) -> None:
        """Looks at the flows to all places of a family, because its table was wrong. Never blocks."""
        self._ledger.mark_family(family)
        if self._ledger.changed:
            self._wanted.set()

    def node_addresses_changed(self, addresses: Collection[str]) -> None:
        """Replaces the addresses at which node ports may answer. Never blocks."""
        came = frozenset(addresses) - self._local_addresses
        self._local_addresses = frozenset(addresses)
        if came:
            self._ledger.mark_node_ports()
            if self._ledger.changed:
                self._wanted.set()

    @property
    def pending(self) -> int:
        """The number of places that changed and were not looked at yet, plus the big service ports that were submitted."""
        return len(self._ledger.changed) + len(self._big)

    async def run(self) -> None:
        """Cleans whenever something was submitted, until cancelled. Failures are reported and retried, never raised."""
        failures = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            reports = await self.clean()
            rest = min(_LONGEST_REST_SECONDS, _REST_PER_WORK * sum(report.seconds for report in reports))
            if all(report.complete for report in reports):
                failures = 0
            else:
                self._wanted.set()
                failures += 1
                rest = max(rest, self._retry.seconds(failures))
            await asyncio.sleep(rest)

    async def _note_big(self) -> None:
        """Packs and notes the big ports of `submit`. A port that is submitted again meanwhile is left for the next call."""
        packing = dict(self._big)
        packed = await in_thread(lambda: [packed_serving(udp_port) for udp_port in packing.values()]) if packing else []
        for (name, udp_port), serving in zip(packing.items(), packed, strict=True):
            if self._big.get(name) is udp_port:
                del self._big[name]
                self._ledger.note(udp_port, serving)

    async def clean(self) -> list[CleaningReport]:
        """Runs one pass over the pending places; returns one report for each family concerned. What it could not finish stays pending."""
        await self._note_big()
        places = self._ledger.take_changed()
        local = self._local_addresses
        reports = []
        for family in Family:
            of_family = [place for place in places if place.family is family]
            if not of_family:
                continue
            targets = targets_for(of_family, self._ledger, family, local)
            stop = threading.Event()
            try:
                report = await in_thread(_Pass(family, targets, stop).run, hurry=stop.set)
            except asyncio.CancelledError:
                self._ledger.put_back(places)
                raise
            if not report.complete:
                self._ledger.put_back(of_family)
            if report.error:
                logger.warning(
                    "UDP flows to endpoints that are gone are not ended yet (%s), trying again: %s",
                    family.value,
                    report.error,
                )
            self._listener.conntrack_cleaned(report)
            reports.append(report)
        return reports


class _Pass:
    """One pass over one family, in a worker thread; `stop` ends it early."""

    def __init__(self, family: Family, targets: Targets, stop: threading.Event) -> None:
        self._family = family
        self._targets = targets
        self._stop = stop
        self._seen = self._deleted = self._gone = self._failed = self._interrupted = 0

    def run(self) -> CleaningReport:
        started = time.perf_counter()
        error = ""
        try:
            with NetlinkSocket(NETLINK_NETFILTER) as writer:
                for request in self._walks():
                    self._walk_to_the_end(request, writer)
        except OSError as failure:
            error = str(failure)
        return CleaningReport(
            family=self._family,
            places=self._targets.places,
            seen=self._seen,
            deleted=self._deleted,
            gone=self._gone,
            failed=self._failed,
            interrupted=self._interrupted,
            seconds=time.perf_counter() - started,
            error=error,
        )

    def _walks(self) -> Iterator[Request]:
        places = self._targets.places
        if not flows_tracked():
            return
        listed = read_flow_list()
        flows = None if listed is None else listed_flows(listed, self._family, socket.IPPROTO_UDP)
        if flows is not None and not any(map(self._targets.is_stale, flows)):
            self._seen = len(flows)
            return
        if places > _SELECTED_WALKS or is_one_walk_faster(places):
            yield dump_udp(self._family)
            return
        requests = [dump_udp(self._family, address, port) for address, port in self._targets.addressed]
        requests += [dump_udp(self._family, port=port) for port in self._targets.node_ports]
        yield from dict.fromkeys(requests)

    def _walk_to_the_end(self, request: Request, writer: NetlinkSocket) -> None:
        """Restarts a walk on a new socket if the kernel interrupts it; raises after some attempts."""
        for attempt in range(_ATTEMPTS):
            try:
                with NetlinkSocket(NETLINK_NETFILTER) as reader:
                    self._walk(request, reader, writer)
            except OSError as error:
                if error.errno not in _INTERRUPTED or attempt == _ATTEMPTS - 1:
                    raise
                self._interrupted += 1
            else:
                return

    def _walk(self, request: Request, reader: NetlinkSocket, writer: NetlinkSocket) -> None:
        waiting: list[Request] = []
        try:
            for datagram in reader.dump_datagrams(request):
                if self._stop.is_set():
                    return
                for flow in read_flows(self._family, datagram):
                    self._seen += 1
                    if self._targets.is_stale(flow):
                        waiting.append(delete_flow(self._family, flow))
                if len(waiting) >= _DELETIONS_AT_A_TIME:
                    self._delete(waiting, writer)
                    waiting.clear()
        finally:
            self._delete(waiting, writer)

    def _delete(self, requests: list[Request], writer: NetlinkSocket) -> None:
        """Deletes flows. ENOENT: the flow ended, or another one replaced it. Others (EBUSY: it is in a flow table) stay for now."""
        failures = writer.perform(requests)
        gone = sum(1 for failure in failures if failure.errno == errno.ENOENT)
        self._gone += gone
        self._failed += len(failures) - gone
        self._deleted += len(requests) - len(failures)
