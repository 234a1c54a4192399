"""The backends of a route in little memory."""

from collections.abc import Iterator, Sequence

from nodeagent.model.frontend import Backend
from nodeagent.model.packed import SEPARATOR, Packed


class PackedBackends(Packed[Backend]):
    """Backends with the same port. addresses: separated by commas. local: the places in that list of those on this node, in order."""

    __slots__ = ("addresses", "local", "port")

    def __init__(self, addresses: str, port: int, local: tuple[int, ...]) -> None:
        self.addresses = addresses
        self.port = port
        self.local = local

    def __len__(self) -> int:
        return self.addresses.count(SEPARATOR) + 1

    def __iter__(self) -> Iterator[Backend]:
        port, local = self.port, self.local
        return iter(
            [Backend(address, port, place in local) for place, address in enumerate(self.addresses.split(SEPARATOR))]
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is PackedBackends:
            return self.addresses == other.addresses and self.port == other.port and self.local == other.local
        return super().__eq__(other)

    __hash__ = Packed.__hash__


def pack_backends(backends: Sequence[Backend]) -> Sequence[Backend]:
    """Returns the same backends, packed if they have the same port, as nearly all have."""
    if len({one.port for one in backends}) != 1:
        return tuple(backends)
    local = tuple([place for place, one in enumerate(backends) if one.local])
    return PackedBackends(SEPARATOR.join([one.address for one in backends]), backends[0].port, local)


def local_backends(backends: Sequence[Backend]) -> Sequence[Backend]:
    """Returns those on this node, which are few."""
    if isinstance(backends, PackedBackends) and not backends.local:
        return ()
    return [one for one in backends if one.local]


def local_addresses(backends: Sequence[Backend]) -> list[str]:
    """Returns the addresses of those on this node."""
    if isinstance(backends, PackedBackends):
        if not backends.local:
            return []
        addresses = backends.addresses.split(SEPARATOR)
        return [addresses[place] for place in backends.local]
    return [one.address for one in backends if one.local]
