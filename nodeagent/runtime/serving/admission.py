"""Decides which connections are admitted, and which one is closed for a new one. Pure: the caller closes them.

A connection is a stranger's until its client has shown credentials (`begin`). At a listener without credentials all
stay strangers, and a request moves a connection to the end of the line (`note_request`). The number of strangers is small; the one at
the head of the line is closed for a new one: first among those of the same address at the same port, then at the same port, then at
the port that has most. So no client can lock out others by holding connections open, and a flood of one port does not affect
those of others. At a full port the address with most strangers gives way first; if no address has more than the new one, and all
strangers have just come, the new one is refused: a thousand nodes that come at once would otherwise close each other's handshakes for ever. Known clients are evicted only if every place is taken, and never while a request of theirs is answered.

The bytes of incomplete heads are limited for all connections together.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

_IPV6_SITE_BITS: Final = 64
_SHARE_OF_FILES: Final = 8


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of connections. An address is an IPv4 address or a /64 of IPv6."""

    total: int = 8192
    per_address: int = 4096
    per_user: int = 2048
    """Of one user with credentials: four tokens are needed to take every place."""
    strangers: int = 1024
    """At one port."""
    strangers_per_address: int = 512
    """At one port."""
    stranger_s: float = 30.0
    """How long a connection may last without credentials."""
    handshake_s: float = 2.0
    """How long a stranger keeps its place when others come that have as few."""
    unfinished_bytes: int = 4 * 1024 * 1024
    """Of incomplete heads, of all connections together."""

    @classmethod
    def without_credentials(cls, files: int) -> "ConnectionLimits":
        """Returns limits for one of a few listeners without credentials, in a process that may have this many open files: an eighth of
        them, the rest is for the work of the process."""
        total = min(4096, max(2, files // _SHARE_OF_FILES))
        return cls(
            total=total,
            per_address=total,
            strangers=min(512, total),
            strangers_per_address=min(64, total // 2),
            handshake_s=0.0,
        )


@dataclass(slots=True)
class _Connection:
    port: int
    address: str
    since: float
    close: Callable[[], None]
    user: str | None = None
    """None for a stranger."""
    requests: int = 0
    unfinished_bytes: int = 0


class Admission:
    """The present connections, by a key of the caller. `clock` returns seconds."""

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._all: dict[Hashable, _Connection] = {}
        self._strangers: dict[int, OrderedDict[Hashable, _Connection]] = {}
        """By port; a port without strangers is not in it."""
        self._idle: OrderedDict[Hashable, _Connection] = OrderedDict()
        """Connections of known clients without a request in progress, the longest idle first."""
        self._per_address: Counter[str] = Counter()
        self._per_user: Counter[str] = Counter()
        self._strangers_per_address: Counter[tuple[int, str]] = Counter()
        self._unfinished_bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def strangers(self) -> int:
        """How many connections have not shown credentials."""
        return sum(map(len, self._strangers.values()))

    @property
    def unfinished_bytes(self) -> int:
        """The bytes kept of incomplete heads."""
        return self._unfinished_bytes

    def enter(self, key: Hashable, peer: str, close: Callable[[], None], port: int = 0) -> bool:
        """Admits a connection to `port`, closing another one if necessary; returns False if there is no room."""
        limits, address = self._limits, site_of(peer)
        if self._strangers_per_address[port, address] >= limits.strangers_per_address:
            self._evict_stranger(port, address)
        elif len(self._strangers.get(port, ())) >= limits.strangers and not self._make_room(port, address):
            return False
        if self._per_address[address] >= limits.per_address and not (
            self._evict_stranger(port, address) or self._evict(self._idle, lambda found: found.address == address)
        ):
            return False
        if len(self._all) >= limits.total and not (
            self._evict_stranger(self._fullest_port()) or self._evict(self._idle)
        ):
            return False
        entered = _Connection(port, address, self._clock(), close)
        self._all[key] = self._strangers.setdefault(port, OrderedDict())[key] = entered
        self._per_address[address] += 1
        self._strangers_per_address[port, address] += 1
        return True

    def leave(self, key: Hashable) -> None:
        """Called when a connection has ended. One that was not admitted, or was evicted, changes nothing."""
        gone = self._all.pop(key, None)
        if gone is None:
            return
        self._idle.pop(key, None)
        self._unfinished_bytes -= gone.unfinished_bytes
        _decrease(self._per_address, gone.address)
        if gone.user is not None:
            _decrease(self._per_user, gone.user)
        else:
            self._remove_stranger(key, gone)

    def note_request(self, key: Hashable) -> None:
        """Records a request of an unknown client: its connection is now the last to be evicted among these."""
        found = self._all.get(key)
        if found is not None and found.user is None:
            self._strangers[found.port].move_to_end(key)

    def begin(self, key: Hashable, user: str) -> bool:
        """Records a request of this user; returns False, and records nothing, if the user has too many connections."""
        found = self._all.get(key)
        if found is None:
            return True
        if found.user != user:
            if self._per_user[user] >= self._limits.per_user and not self._evict(
                self._idle, lambda other: other.user == user
            ):
                return False
            if found.user is None:
                self._remove_stranger(key, found)
            else:
                _decrease(self._per_user, found.user)
            found.user = user
            self._per_user[user] += 1
        found.requests += 1
        self._idle.pop(key, None)
        return True

    def end(self, key: Hashable) -> None:
        """Called when a request that `begin` admitted has been answered."""
        found = self._all.get(key)
        if found is None:
            return
        found.requests -= 1
        if not found.requests:
            self._idle[key] = found

    def note_unfinished(self, key: Hashable, size_bytes: int) -> None:
        """Sets the bytes received of an incomplete head (0: it is complete). Closes the connections with most if there are too many in
        all."""
        found = self._all.get(key)
        if found is None:
            return
        self._unfinished_bytes += size_bytes - found.unfinished_bytes
        found.unfinished_bytes = size_bytes
        while self._unfinished_bytes > self._limits.unfinished_bytes:
            self._close(max(self._all, key=lambda other: self._all[other].unfinished_bytes))

    def close_overdue(self) -> int:
        """Closes the strangers that have been here too long; returns how many."""
        before = self._clock() - self._limits.stranger_s
        late = [key for line in self._strangers.values() for key, found in line.items() if found.since <= before]
        for key in late:
            self._close(key)
        return len(late)

    def _fullest_port(self) -> int:
        return max(self._strangers, key=lambda port: len(self._strangers[port]), default=0)

    def _remove_stranger(self, key: Hashable, found: _Connection) -> None:
        line = self._strangers[found.port]
        del line[key]
        if not line:
            del self._strangers[found.port]
        _decrease(self._strangers_per_address, (found.port, found.address))

    def _make_room(self, port: int, address: str) -> bool:
        """Closes a stranger at a full port for a new one of that address; returns False if the new one must wait."""
        line = self._strangers[port]
        counts = {owner: count for (at, owner), count in self._strangers_per_address.items() if at == port}
        fullest = max(counts, key=counts.__getitem__)
        if counts[fullest] > counts.get(address, 0) + 1:
            self._close(next(key for key in reversed(line) if line[key].address == fullest))
            return True
        if next(iter(line.values())).since > self._clock() - self._limits.handshake_s:
            return False
        return self._evict_stranger(port)

    def _evict_stranger(self, port: int, address: str = "") -> bool:
        """Closes the first stranger at that port, of that address if one is given; returns False if there is no such stranger."""
        return self._evict(
            self._strangers.get(port, OrderedDict()), lambda found: not address or found.address == address
        )

    def _evict(
        self, among: OrderedDict[Hashable, _Connection], is_meant: Callable[[_Connection], bool] = lambda _: True
    ) -> bool:
        key = next((key for key, found in among.items() if is_meant(found)), None)
        if key is None:
            return False
        self._close(key)
        return True

    def _close(self, key: Hashable) -> None:
        found = self._all[key]
        self.leave(key)
        found.close()


def _decrease(counts: Counter, key: Hashable) -> None:  # type: ignore[type-arg]  # of any kind of key
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def site_of(peer: str) -> str:
    """Returns the unit of addresses that limits count: one machine has a whole /64 of IPv6 addresses to choose from."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:  # the connection had already ended
        return ""
    if not isinstance(address, IPv6Address):
        return str(address)
    mapped = address.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    return f"{address.packed[: _IPV6_SITE_BITS // 8].hex()}::"
