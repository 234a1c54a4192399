"""The endpoints of a slice that is held in memory: their addresses are one text, and the rest of each is shared."""

from collections.abc import Iterator, Sequence

from nodeagent.model.objects import Endpoint
from nodeagent.model.packed import SEPARATOR, Packed


class StoredEndpoints(Packed[Endpoint]):
    """Endpoints with one address each.

    addresses: separated by commas. others: the endpoints without their addresses; equal ones may be the same object.
    """

    __slots__ = ("addresses", "others")

    def __init__(self, addresses: str, others: tuple[Endpoint, ...]) -> None:
        self.addresses = addresses
        self.others = others

    def __len__(self) -> int:
        return len(self.others)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(
            [
                Endpoint((address,), one.conditions, one.node_name, one.zone, one.hints, one.hostname)
                for address, one in zip(self.addresses.split(SEPARATOR), self.others, strict=True)
            ]
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is StoredEndpoints:
            return self.addresses == other.addresses and self.others == other.others
        return super().__eq__(other)

    __hash__ = Packed.__hash__


def without_addresses(endpoints: Sequence[Endpoint] | None) -> Sequence[Endpoint]:
    """Returns the endpoints for a reader that does not need their addresses. This makes no new objects."""
    return endpoints.others if isinstance(endpoints, StoredEndpoints) else endpoints or ()
