"""Which connections there may be, and which has to go for a new one. Pure: the caller closes them.

A stranger is whoever has not yet shown credentials. Strangers are few, and the one that has waited longest makes room for
the next; those who are known are evicted only when every place is taken, and never while a request of theirs is answered.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

_IPV6_SITE_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be."""

    total: int = 8192
    per_address: int = 4096
    strangers: int = 1024
    strangers_per_address: int = 512
    stranger_s: float = 30.0
    """How long one may go without showing credentials."""


@dataclass(slots=True)
class _Connection:
    address: str
    since: float
    close: Callable[[], None]
    known: bool = False
    requests: int = 0


class Admission:
    """The connections there are, by a key of the caller's. `clock` gives seconds."""

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._all: dict[Hashable, _Connection] = {}
        self._strangers: OrderedDict[Hashable, _Connection] = OrderedDict()
        self._idle: OrderedDict[Hashable, _Connection] = OrderedDict()
        """Those who are known and wait for nothing, the longest first."""
        self._per_address: Counter[str] = Counter()
        self._strangers_per_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    @property
    def strangers(self) -> int:
        """How many have not shown credentials."""
        return len(self._strangers)

    def enter(self, key: Hashable, peer: str, close: Callable[[], None]) -> bool:
        """Takes in a connection, closing another where it must; False: there is no room."""
        limits, address = self._limits, site_of(peer)
        if self._strangers_per_address[address] >= limits.strangers_per_address:
            self._evict(self._strangers, address)
        elif len(self._strangers) >= limits.strangers:
            self._evict(self._strangers)
        if self._per_address[address] >= limits.per_address and not (
            self._evict(self._strangers, address) or self._evict(self._idle, address)
        ):
            return False
        if len(self._all) >= limits.total and not (self._evict(self._strangers) or self._evict(self._idle)):
            return False
        entered = _Connection(address, self._clock(), close)
        self._all[key] = self._strangers[key] = entered
        self._per_address[address] += 1
        self._strangers_per_address[address] += 1
        return True

    def leave(self, key: Hashable) -> None:
        """A connection has ended; one that is unknown is none."""
        gone = self._all.pop(key, None)
        if gone is None:
            return
        self._idle.pop(key, None)
        self._per_address[gone.address] -= 1
        if not self._per_address[gone.address]:
            del self._per_address[gone.address]
        if self._strangers.pop(key, None) is not None:
            self._no_stranger(gone.address)

    def begin(self, key: Hashable) -> None:
        """A request has come whose sender is known."""
        found = self._all.get(key)
        if found is None:
            return
        found.requests += 1
        self._idle.pop(key, None)
        if self._strangers.pop(key, None) is not None:
            found.known = True
            self._no_stranger(found.address)

    def end(self, key: Hashable) -> None:
        """The request has been answered."""
        found = self._all.get(key)
        if found is None:
            return
        found.requests -= 1
        if not found.requests:
            self._idle[key] = found

    def overdue(self) -> int:
        """Closes the strangers who have been here too long; how many."""
        closed = 0
        before = self._clock() - self._limits.stranger_s
        while self._strangers and next(iter(self._strangers.values())).since <= before:
            self._evict(self._strangers)
            closed += 1
        return closed

    def _no_stranger(self, address: str) -> None:
        self._strangers_per_address[address] -= 1
        if not self._strangers_per_address[address]:
            del self._strangers_per_address[address]

    def _evict(self, among: OrderedDict[Hashable, _Connection], address: str = "") -> bool:
        """Closes the first of them, of that address if one is given; False: there is none."""
        key = next((key for key, found in among.items() if not address or found.address == address), None)
        if key is None:
            return False
        found = among[key]
        self.leave(key)
        found.close()
        return True


def site_of(peer: str) -> str:
    """Whom an address belongs to: one machine has a whole /64 of IPv6 addresses to choose from."""
    address = ip_address(peer.partition("%")[0])
    if not isinstance(address, IPv6Address):
        return str(address)
    mapped = address.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    return f"{address.packed[: _IPV6_SITE_BITS // 8].hex()}::"
