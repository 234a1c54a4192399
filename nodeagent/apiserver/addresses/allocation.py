"""Allocates cluster addresses and node ports, with one holder each, recorded in the store.

An address is an IPAddress object, a node port is a bit of one RangeAllocation, as in kube-apiserver; both are written in the
transaction that writes the Service, so Service and record cannot differ after a crash. Between choice and commit, a value is
reserved in memory against other requests; another server on the same store detects a conflict at its commit.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from nodeagent.apiserver.addresses.port_bitmap import NODE_PORT_RANGE, RANGE_ALLOCATIONS, PortBitmap
from nodeagent.apiserver.addresses.ranges import PortRange, Random, RangeRefused
from nodeagent.apiserver.addresses.service_ranges import ServiceRanges
from nodeagent.apiserver.storage.records import Change, Precondition, Record, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.status import FieldError

ADDRESSES: Final = "ipaddresses"
NODE_PORT_RECORDS: Final = "nodeports"
"""The collection in which the previous version of this program recorded node ports, one object each."""

NOT_IN_RANGE: Final = "the provided network does not match the current range"
ALREADY_TAKEN: Final = "provided IP is already allocated"


class Unavailable(Exception):
    """The requested value is not free, or no value is; the text is Kubernetes'."""


class AllocationRefused(Exception):
    """The addresses or ports that the object requests cannot be allocated."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


def holder_of(collection: str, document: Document) -> str:
    """Returns the Service (`namespace/name`) that is recorded as the holder of an address or node port."""
    if collection == NODE_PORT_RECORDS:
        return str(document.get("holder", ""))
    parent = document["spec"].get("parentRef") or {}
    return f"{parent.get('namespace', '')}/{parent.get('name', '')}"


@dataclass(slots=True)
class Reservation:
    """What one request reserved and freed. `changes` go into its transaction; call `Allocator.release` after that ended."""

    changes: list[Change] = field(default_factory=list)
    addresses: set[str] = field(default_factory=set)
    ports: set[int] = field(default_factory=set)
    freed_ports: set[int] = field(default_factory=set)


class Allocator:
    """Allocates addresses of the service ranges and ports of the node port range.

    describe: returns the IPAddress object for (address, namespace, name) as a draft.
    kept: addresses that only one Service (`namespace/name`) may have, so that it gets them again after a deletion.
    has_predecessors: returns whether a server of the previous version is live, which knows only its own records of node ports.
    """

    def __init__(
        self,
        store: Store,
        ranges: ServiceRanges,
        ports: PortRange,
        random: Random,
        describe: Callable[[str, str, str], bytes],
        kept: Mapping[str, str] = MappingProxyType({}),
        has_predecessors: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ranges = ranges
        self._store = store
        self._ports = ports
        self._random = random
        self._describe = describe
        self._kept = kept
        self._reserved: set[str] = set()
        self._has_predecessors = has_predecessors
        self._bitmap_read: tuple[Record, PortBitmap] | None = None
        self._reserved_ports: set[int] = set()
        self.port_turn = asyncio.Lock()
        """Held while a change of node ports is committed: all are bits of one object."""

    @property
    def families(self) -> list[str]:
        """The IP families that Services can have, the primary one first."""
        return [found.family for found in self._ranges.configured]

    def release(self, reservation: Reservation) -> None:
        """Ends a reservation after its transaction: the store now has the result."""
        self._reserved -= reservation.addresses
        self._reserved_ports -= reservation.ports

    def take_address(self, reservation: Reservation, address: str, namespace: str, name: str) -> None:
        """Reserves a certain address. Raises Unavailable."""
        if not self._ranges.hold(address):
            raise Unavailable(NOT_IN_RANGE)
        if self._is_taken(address) or self._kept.get(address, f"{namespace}/{name}") != f"{namespace}/{name}":
            raise Unavailable(ALREADY_TAKEN)
        self._reserve(reservation, address, namespace, name)

    def pick_address(self, reservation: Reservation, family: str, namespace: str, name: str) -> str:
        """Reserves and returns a free address of the family. Raises Unavailable."""
        for found in self._ranges.of(family):
            for number in found.pool.candidates(self._random):
                address = found.address(number)
                if not self._is_taken(address) and address not in self._kept:
                    self._reserve(reservation, address, namespace, name)
                    return address
        raise Unavailable("range is full")

    def free_address(self, reservation: Reservation, address: str, holder: str) -> None:
        """Frees the address in the transaction, if its recorded holder is `holder` (`namespace/name`)."""
        record = self._store.get(ADDRESSES, address)
        if record is not None and holder_of(ADDRESSES, record.document()) == holder:
            reservation.changes.append(Change(ADDRESSES, address, record.revision, None, record.body))

    def take_port(self, reservation: Reservation, port: int, holder: str) -> None:
        """Reserves a certain node port. The same request may take it twice, for different protocols. Raises Unavailable."""
        if port in reservation.ports:
            return
        if not self._ports.holds(port):
            raise Unavailable(
                f"provided port is not in the valid range. The range of valid ports is {self._ports.first}-{self._ports.last}"
            )
        if self._is_port_taken(port):
            raise Unavailable("provided port is already allocated")
        self._reserve_port(reservation, port, holder)

    def pick_port(self, reservation: Reservation, holder: str) -> int:
        """Reserves and returns a free node port. Raises Unavailable."""
        for number in self._ports.pool.candidates(self._random):
            port = self._ports.first + number
            if not self._is_port_taken(port):
                self._reserve_port(reservation, port, holder)
                return port
        raise Unavailable("range is full")

    def free_port(self, reservation: Reservation, port: int, holder: str) -> None:
        """Frees the node port in the transaction, unless a Service other than `holder` is recorded (`namespace/name`)."""
        record = self._store.get(NODE_PORT_RECORDS, str(port))
        if record is not None:
            if holder_of(NODE_PORT_RECORDS, record.document()) != holder:
                return
            reservation.changes.append(Change(NODE_PORT_RECORDS, str(port), record.revision, None))
        reservation.freed_ports.add(port)

    def record_ports(self, reservation: Reservation) -> list[Change]:
        """Returns the change of the latest bitmap. Raises Precondition if another server allocated one of the ports."""
        try:
            record, bitmap = self._bitmap()
        except Unavailable:
            return []  # without a bitmap no port was taken, and none is recorded that could be freed
        taken, freed = reservation.ports, reservation.freed_ports
        changed = bitmap.changed(taken, freed)
        change = Change(RANGE_ALLOCATIONS, NODE_PORT_RANGE, record.revision, changed.draft(), frees=not taken)
        if taken and (bitmap.ports != self._ports or any(port in bitmap for port in taken)):
            raise Precondition(change, record.revision)
        return [change] if changed != bitmap else []

    def _is_taken(self, address: str) -> bool:
        return address in self._reserved or self._store.get(ADDRESSES, address) is not None

    def _is_port_taken(self, port: int) -> bool:
        """Raises Unavailable if the bitmap is missing or belongs to another range."""
        _, bitmap = self._bitmap()
        if bitmap.ports != self._ports:
            raise Unavailable("the provided port range does not match the previous range")
        is_recorded = port in bitmap or self._store.get(NODE_PORT_RECORDS, str(port)) is not None
        return is_recorded or port in self._reserved_ports

    def _bitmap(self) -> tuple[Record, PortBitmap]:
        record = self._store.get(RANGE_ALLOCATIONS, NODE_PORT_RANGE)
        if record is None:
            raise Unavailable("cannot allocate resources of type servicenodeports at this time")
        if self._bitmap_read is None or self._bitmap_read[0] is not record:
            try:
                self._bitmap_read = record, PortBitmap.read(record.document())
            except RangeRefused as error:
                raise Unavailable(str(error)) from None
        return self._bitmap_read

    def _reserve(self, reservation: Reservation, address: str, namespace: str, name: str) -> None:
        self._reserved.add(address)
        reservation.addresses.add(address)
        reservation.changes.append(Change(ADDRESSES, address, 0, self._describe(address, namespace, name)))

    def _reserve_port(self, reservation: Reservation, port: int, holder: str) -> None:
        self._reserved_ports.add(port)
        reservation.ports.add(port)
        if self._has_predecessors():
            body: Document = {"metadata": {"name": str(port), "resourceVersion": ""}, "holder": holder}
            reservation.changes.append(Change(NODE_PORT_RECORDS, str(port), 0, draft(body)))
