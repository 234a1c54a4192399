"""The set of allocated node ports in kube-apiserver's form: a RangeAllocation whose data is a bitmap. Pure.

pkg/registry/core/service/allocator: bit n is the n-th port of the range, in the bytes of one number, the highest byte first.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from nodeagent.apiserver.addresses.ranges import PortRange, RangeRefused, parse_port_range
from nodeagent.apiserver.storage.records import draft
from nodeagent.kinds.description.documents import Document

RANGE_ALLOCATIONS: Final = "ranges"
NODE_PORT_RANGE: Final = "servicenodeports"
"""The name, which is part of kube-apiserver's key."""


@dataclass(frozen=True, slots=True)
class PortBitmap:
    """The allocated ports of a range."""

    ports: PortRange
    bits: int = 0

    @classmethod
    def read(cls, document: Document) -> Self:
        """Reads the bitmap of a document. Raises RangeRefused if it is not a range."""
        try:
            data = b64decode(document.get("data") or "", validate=True)
            return cls(parse_port_range(document["range"]), int.from_bytes(data, "big"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RangeRefused(f"{RANGE_ALLOCATIONS}/{NODE_PORT_RANGE} cannot be read: {error}") from None

    @classmethod
    def of(cls, ports: PortRange, taken: Iterable[int]) -> Self:
        """Returns a bitmap with those of `taken` that are in the range."""
        return cls(ports).changed(taken, ())

    def __contains__(self, port: int) -> bool:
        return self.ports.holds(port) and bool(self.bits >> (port - self.ports.first) & 1)

    def __iter__(self) -> Iterator[int]:
        return (port for port in range(self.ports.first, self.ports.last + 1) if port in self)

    def changed(self, taken: Iterable[int], freed: Iterable[int]) -> Self:
        """Returns a bitmap with more ports taken and others freed; ports outside the range are ignored."""
        return type(self)(self.ports, (self.bits & ~self._mask(freed)) | self._mask(taken))

    def draft(self) -> bytes:
        """Returns the document to store."""
        data = self.bits.to_bytes((self.bits.bit_length() + 7) // 8, "big")
        head = {"metadata": {"resourceVersion": "0"}, "range": f"{self.ports.first}-{self.ports.last}"}
        return draft({**head, "data": b64encode(data).decode()})

    def _mask(self, ports: Iterable[int]) -> int:
        mask = 0
        for port in ports:
            if self.ports.holds(port):
                mask |= 1 << (port - self.ports.first)
        return mask
