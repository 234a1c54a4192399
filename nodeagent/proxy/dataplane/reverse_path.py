"""The reverse path filter of this network namespace: where it is strict, what it drops, and what follows from that."""

import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from nodeagent.model.problem import Problem

SUBJECT = "reverse path filter"
STRICT = 1
DROPS = "IPReversePathFilter"
RECENT_SECONDS = 60.0
"""How long after a drop the filter is reported: clients repeat what was lost in growing intervals."""
_SETTINGS = Path("proc/sys/net")
_STATISTICS = Path("proc/thread-self/net/netstat")
_NAMED = 3


def mode_of(interface: str, setting: Callable[[str], int | None]) -> int:
    """Returns the greater of the interface's value and that of `all` (ip-sysctl). setting: reads the value at a path below net; None: it
    does not exist."""
    return max(setting(f"ipv4/conf/{name}/rp_filter") or 0 for name in ("all", interface))


def strict_interfaces(names: Iterable[str], setting: Callable[[str], int | None]) -> tuple[str, ...]:
    """Returns the interfaces on which the filter drops packets that did not come by the route back to their source."""
    return tuple(name for name in names if name != "lo" and mode_of(name, setting) == STRICT)


def describe(strict: tuple[str, ...], dropped: str) -> str:
    """Returns what the filter has done, as a text for users. dropped: how many packets, in words."""
    names = ", ".join(strict[:_NAMED])
    return f"the reverse path filter {dropped}: they came in by an interface ({names}) that is not on the way back to their source"


def cure(strict: tuple[str, ...]) -> str:
    """Returns what the user can do about it."""
    return f"sysctl -w net.ipv4.conf.all.rp_filter=2, or correct the routes (nodeagent trace … --from {strict[0]})"


def read_drops(root: Path = Path("/")) -> int | None:
    """Returns how many packets the filter has dropped since the namespace was made; None if this process may not read that."""
    try:
        lines = (root / _STATISTICS).read_text().splitlines()
        heads, values = (line.split() for line in lines if line.startswith("TcpExt:"))
        return int(dict(zip(heads, values, strict=False)).get(DROPS, 0))
    except (OSError, ValueError):
        return None


def interfaces_here() -> tuple[str, ...]:
    """Returns the names of all interfaces of this namespace. Raises OSError."""
    return tuple(name for _, name in socket.if_nameindex())


class ReversePathFilter:
    """Reads the counter, and the interfaces only while the counter rises. clock: in seconds."""

    def __init__(
        self,
        root: Path = Path("/"),
        interfaces: Callable[[], tuple[str, ...]] = interfaces_here,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._interfaces = interfaces
        self._clock = clock
        self._last_drop: float | None = None
        self.dropped: int | None = None

    def problems(self) -> tuple[Problem, ...]:
        """Returns one problem while the filter drops packets and is strict somewhere. Drops before the first look do not count."""
        before, self.dropped = self.dropped, read_drops(self._root)
        now = self._clock()
        if before is not None and self.dropped is not None and self.dropped > before:
            self._last_drop = now
        if self._last_drop is None or now - self._last_drop >= RECENT_SECONDS:
            return ()
        try:
            strict = strict_interfaces(self._interfaces(), self._setting)
        except OSError:
            return ()
        if not strict:
            return ()
        return (Problem(SUBJECT, "ReversePathDrops", f"{describe(strict, 'drops packets')}; {cure(strict)}"),)

    def _setting(self, path: str) -> int | None:
        try:
            return int((self._root / _SETTINGS / path).read_text())
        except (OSError, ValueError):
            return None
