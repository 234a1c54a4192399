"""The ranges cluster addresses come from: those the server was started with, and those of further ServiceCIDRs (KEP-1880).

A ServiceCIDR serves from its creation on, unless it is being deleted or says it is not ready; what it gave out stays given.
The families of services are those the server was started with, so a range of another family lies idle.
"""

from collections.abc import Sequence
from typing import Final

from nodeagent.apiserver.addresses.ranges import AddressRange
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.address_texts import parse_cidr
from nodeagent.kinds.description.documents import Document

RANGES: Final = "servicecidrs"
DEFAULT: Final = "kubernetes"
"""The object that shows the ranges the server was started with; those are in force whatever it says."""


class ServiceRanges:
    """Reads the store when it has changed."""

    def __init__(self, store: Store, configured: tuple[AddressRange, ...]) -> None:
        self.configured = configured
        self._collection = store.collection(RANGES)
        self._seen: tuple[int, ...] = ()
        self._all = configured

    def of(self, family: str) -> Sequence[AddressRange]:
        """The ranges of a family, those the server was started with first."""
        return [found for found in self._current() if found.family == family]

    def hold(self, address: str) -> bool:
        """One of them has the address."""
        return any(found.holds(address) for found in self._current())

    def _current(self) -> tuple[AddressRange, ...]:
        seen = tuple(record.revision for record in self._collection.records.values())
        if seen != self._seen:
            self._seen = seen
            further = [
                AddressRange(network)
                for path in self._collection.paths()
                if path != DEFAULT and is_in_use(document := self._collection.records[path].document())
                for network in map(parse_cidr, document["spec"].get("cidrs") or [])
                if network is not None
            ]
            self._all = (*self.configured, *further)
        return self._all


def is_in_use(service_cidr: Document) -> bool:
    """New addresses may come from it."""
    return not service_cidr["metadata"].get("deletionTimestamp") and is_ready(service_cidr) is not False


def is_ready(service_cidr: Document) -> bool | None:
    """What its Ready condition says, None when it has none yet."""
    for condition in (service_cidr.get("status") or {}).get("conditions") or []:
        if condition["type"] == "Ready":
            return bool(condition["status"] == "True")
    return None
