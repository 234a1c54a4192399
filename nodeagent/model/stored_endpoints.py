"""The endpoints of a slice that is held in memory: their addresses are one text, and the rest of each is shared."""

from collections.abc import Iterator, Sequence
from typing import overload

from nodeagent.model.objects import Endpoint

SEPARATOR = ","


class StoredEndpoints(Sequence[Endpoint]):
    """Endpoints with one address each, which are made again when they are read. Equal to any sequence of equal endpoints.

    addresses: separated by commas. others: the endpoints without their addresses; equal ones may be the same object.
    """

    __slots__ = ("addresses", "others")

    def __init__(self, addresses: str, others: tuple[Endpoint, ...]) -> None:
        self.addresses = addresses
        self.others = others

    def __len__(self) -> int:
        return len(self.others)

    def __iter__(self) -> Iterator[Endpoint]:
        for address, one in zip(self.addresses.split(SEPARATOR), self.others, strict=True):
            yield Endpoint((address,), one.conditions, one.node_name, one.zone, one.hints, one.hostname)

    @overload
    def __getitem__(self, index: int) -> Endpoint: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Endpoint]: ...
    def __getitem__(self, index: int | slice) -> Endpoint | Sequence[Endpoint]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StoredEndpoints):
            return self.addresses == other.addresses and self.others == other.others
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


def without_addresses(endpoints: Sequence[Endpoint] | None) -> Sequence[Endpoint]:
    """Returns the endpoints to read anything but their addresses of: no objects are made for that."""
    return endpoints.others if isinstance(endpoints, StoredEndpoints) else endpoints or ()
