"""Accounts for a bounded resource that all clients share. Pure.

Two rules keep one client from using up what others need. Where a new request can be refused, a client has room while it
holds less than is still free: alone it gets half of the whole, with n others like it each gets one part of n + 2, and a
client that holds nothing always has room. Where an old entry can be dropped, the client with the largest share loses
one.
"""

from collections import defaultdict
from typing import NamedTuple

from nodeagent.model.addresses import pack_address

_PREFIX_BYTES = 8
"""Bytes of the network part of an IPv6 address: a host may have all addresses of a /64."""
NETWORK_FACTOR = 8
"""All addresses of one /64 together may hold this many times the free amount. More than 1, because the pods of a node
often share one /64."""


class Client(NamedTuple):
    """A client, as shares count it. network: an IPv4 address, or the /64 of an IPv6 one. address: as bytes."""

    network: bytes
    address: bytes


NOBODY = Client(b"", b"")
"""The client of work that no client asked for."""


def client_at(text: str) -> Client:
    """Returns the client at an address as the socket gives it, an IPv6 one perhaps with its zone."""
    packed = pack_address(text.partition("%")[0]) if text else b""
    return Client(packed[:_PREFIX_BYTES], packed)


class Ranking:
    """Amounts by key, with the largest always known."""

    def __init__(self) -> None:
        self._amounts: dict[bytes, int] = {}
        self._levels: defaultdict[int, dict[bytes, None]] = defaultdict(dict)
        self._most = 0

    def __len__(self) -> int:
        return len(self._amounts)

    def of(self, key: bytes) -> int:
        """Returns the amount of a key, 0 for an unknown one."""
        return self._amounts.get(key, 0)

    def change(self, key: bytes, difference: int) -> None:
        """Adds `difference` to the amount of a key. The result must not be negative."""
        before = self._amounts.get(key, 0)
        after = before + difference
        if before:
            level = self._levels[before]
            del level[key]
            if not level:
                del self._levels[before]
        if after:
            self._amounts[key] = after
            self._levels[after][key] = None
        else:
            self._amounts.pop(key, None)
        self._most = max(self._most, after)
        while self._most and self._most not in self._levels:  # as many steps as were taken away, at most
            self._most -= 1

    def largest(self) -> bytes:
        """Returns the key with the largest amount; of equal ones the one that has had it for the longest. Raises
        IndexError if there is no key."""
        if not self._most:
            raise IndexError("no key has an amount")
        return next(iter(self._levels[self._most]))


class Shares:
    """What each client holds. most: the whole amount, for `has_room`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.total = 0
        self._networks = Ranking()
        self._addresses: dict[bytes, Ranking] = {}

    def of(self, client: Client) -> int:
        """Returns what a client holds."""
        addresses = self._addresses.get(client.network)
        return 0 if addresses is None else addresses.of(client.address)

    def has_room(self, client: Client) -> bool:
        """Returns whether a client may take one more."""
        free = self._most - self.total
        return self.of(client) < free and self._networks.of(client.network) < NETWORK_FACTOR * free

    def take(self, client: Client, amount: int = 1) -> None:
        """Adds this amount to what the client holds."""
        self._change(client, amount)

    def give_back(self, client: Client, amount: int = 1) -> None:
        """Subtracts this amount from what the client holds."""
        self._change(client, -amount)

    def largest(self) -> Client:
        """Returns the client with the largest share in the network with the largest. Raises IndexError without one."""
        network = self._networks.largest()
        return Client(network, self._addresses[network].largest())

    def _change(self, client: Client, difference: int) -> None:
        self.total += difference
        self._networks.change(client.network, difference)
        addresses = self._addresses.setdefault(client.network, Ranking())
        addresses.change(client.address, difference)
        if not addresses:
            del self._addresses[client.network]
