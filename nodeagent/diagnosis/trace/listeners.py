"""The sockets of this network namespace that listen, read from the kernel once for each protocol and family."""

from pathlib import Path

from nodeagent.model.addresses import Family, Protocol, family_of, pack_address, unpack_address
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.tcp_listeners import get_tcp_listeners, read_tcp_listener
from nodeagent.wire.netlink.uapi.netlink import NETLINK_SOCK_DIAG

NET = Path("/proc/thread-self/net")
_TCP_LISTEN, _UDP_UNCONNECTED = "0A", "07"
_LISTENING = {Protocol.TCP: _TCP_LISTEN, Protocol.UDP: _UDP_UNCONNECTED}
_TABLES = {
    (Protocol.TCP, Family.IPV4): "tcp",
    (Protocol.TCP, Family.IPV6): "tcp6",
    (Protocol.UDP, Family.IPV4): "udp",
    (Protocol.UDP, Family.IPV6): "udp6",
}


class Listeners:
    """Needs no privilege."""

    def __init__(self) -> None:
        self._found: dict[tuple[Protocol, Family], list[tuple[bytes, int]]] = {}

    def accept(self, address: str, port: int, protocol: Protocol, *, exactly: bool) -> bool:
        """Returns whether a socket listens there; for protocols whose sockets are not listed: yes. exactly: a socket of any address does
        not count."""
        if protocol not in _LISTENING:
            return not exactly
        families = (Family.IPV6,) if family_of(address) is Family.IPV6 else tuple(Family)
        return any(
            number == port and _covers(place, address, exactly=exactly)
            for family in families
            for place, number in self._all(protocol, family)
        )

    def _all(self, protocol: Protocol, family: Family) -> list[tuple[bytes, int]]:
        if (protocol, family) not in self._found:
            found = tcp_listeners(family) if protocol is Protocol.TCP else None
            self._found[protocol, family] = listed_sockets(protocol, family) if found is None else found
        return self._found[protocol, family]


def tcp_listeners(family: Family) -> list[tuple[bytes, int]] | None:
    """Returns packed address and port of each; None if the kernel does not list them (CONFIG_INET_TCP_DIAG). It has a table of those
    that listen, but for /proc/net/tcp it goes through the connections of the whole machine, which takes milliseconds."""

    def dump() -> list[tuple[bytes, int]]:
        with NetlinkSocket(NETLINK_SOCK_DIAG) as netlink:
            return [*map(read_tcp_listener, netlink.dump(get_tcp_listeners(family)))]

    try:
        return retry(dump)
    except OSError:
        return None


def listed_sockets(protocol: Protocol, family: Family) -> list[tuple[bytes, int]]:
    """Returns packed address and port of each listening socket in /proc/net."""
    try:
        lines = (NET / _TABLES[protocol, family]).read_text().splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        _, local, _, state, *_ = line.split()
        place, _, number = local.partition(":")
        if state == _LISTENING[protocol]:
            words = [bytes.fromhex(place[at : at + 8])[::-1] for at in range(0, len(place), 8)]
            found.append((b"".join(words), int(number, 16)))
    return found


def _covers(packed: bytes, address: str, *, exactly: bool) -> bool:
    """Returns whether a socket with this address accepts packets to `address`."""
    if not any(packed):
        return not exactly
    mapped = packed[-4:] if len(packed) > len(pack_address(address)) else packed
    return unpack_address(mapped) == address
