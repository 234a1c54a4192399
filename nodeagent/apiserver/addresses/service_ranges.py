"""The ranges of cluster addresses: those the server was started with, and those of further ServiceCIDRs (KEP-1880).

A ServiceCIDR is used from its creation on, unless it is being deleted or is not ready; addresses that were allocated from it
stay. The families of Services are those the server was started with, so a range of another family is not used.
"""

from collections.abc import Sequence
from typing import Final

from nodeagent.apiserver.addresses.ranges import AddressRange
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.address_texts import parse_cidr
from nodeagent.kinds.description.documents import Document

RANGES: Final = "servicecidrs"
DEFAULT: Final = "kubernetes"
"""The object that shows the ranges the server was started with; these are used whatever the object contains."""


class ServiceRanges:
    """The ranges in use. Reads the ServiceCIDRs again when one of them changed."""

    def __init__(self, store: Store, configured: tuple[AddressRange, ...]) -> None:
        self.configured = configured
        self._collection = store.collection(RANGES)
        self._seen: tuple[int, ...] = ()
        self._all = configured

    def of(self, family: str) -> Sequence[AddressRange]:
        """Returns the ranges of a family, those the server was started with first."""
        return [found for found in self._current() if found.family == family]

    def hold(self, address: str) -> bool:
        """Returns whether one of the ranges contains the address."""
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
    """Returns whether new addresses may be allocated from it."""
    return not service_cidr["metadata"].get("deletionTimestamp") and is_ready(service_cidr) is not False


def is_ready(service_cidr: Document) -> bool | None:
    """Returns the value of its Ready condition, or None if it has none yet."""
    for condition in (service_cidr.get("status") or {}).get("conditions") or []:
        if condition["type"] == "Ready":
            return bool(condition["status"] == "True")
    return None
