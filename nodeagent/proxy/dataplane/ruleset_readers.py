"""Finds out which other processes read netfilter's objects at this moment.

The kernel shows for each netlink socket whether a dump is in progress. It does not show of what: a dump of tracked connections looks
the same. It is asked by netlink; a kernel without that (CONFIG_NETLINK_DIAG) shows it in /proc (af_netlink.c, netlink_native_seq_show),
which takes several times as long.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from nodeagent.wire.netlink.netlink_sockets import get_netlink_sockets, read_netlink_socket
from nodeagent.wire.netlink.socket import NetlinkSocket, is_temporary
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER, NETLINK_SOCK_DIAG

_SOCKETS = Path("/proc/thread-self/net/netlink")
_NETFILTER = str(NETLINK_NETFILTER)


class NetfilterSockets:
    """Those of the network namespace of the thread that looks first. Not for use by two threads at a time.

    children: returns the numbers of processes of ours, for which no commit has to wait.
    """

    def __init__(self, children: Callable[[], Collection[int]] = tuple) -> None:
        self._children = children
        self._socket: NetlinkSocket | None = None
        self._refused = False

    def close(self) -> None:
        """Closes the socket by which the kernel is asked."""
        if self._socket is not None:
            self._socket.close()

    def present(self) -> Mapping[int, bool]:
        """Returns the sockets, by inode, with whether a dump is in progress. Empty if that cannot be known.

        If some socket is in a dump, those of this process and its children are left out, and those that are closed meanwhile: finding them
        takes longer than all the rest.
        """
        found = self._list()
        if not any(found.values()):
            return found
        own = _sockets_of("self", *self._children())
        others = {number: dumping for number, dumping in found.items() if number not in own}
        if any(others.values()):  # one of ours may have been closed before its owner was looked at
            others = {number: others[number] for number in self._list() if number in others}
        return others

    def _list(self) -> Mapping[int, bool]:
        return _listed_in_proc() if self._refused else self._listed_by_kernel()

    def _listed_by_kernel(self) -> Mapping[int, bool]:
        try:
            self._socket = self._socket or NetlinkSocket(NETLINK_SOCK_DIAG)
            return dict(map(read_netlink_socket, self._socket.dump(get_netlink_sockets(NETLINK_NETFILTER))))
        except OSError as error:
            self._refused = not is_temporary(error)
            return _listed_in_proc()


def _listed_in_proc() -> Mapping[int, bool]:
    try:
        header, *lines = _SOCKETS.read_bytes().decode().splitlines()
        names = header.split()
        family, dump, inode = (names.index(name) for name in ("Eth", "Dump", "Inode"))
        rows = [line.split() for line in lines]
        return {int(row[inode]): row[dump] != "0" for row in rows if row[family] == _NETFILTER}
    except (OSError, ValueError):
        return {}


def _sockets_of(*processes: object) -> frozenset[int]:
    found = set()
    for process in processes:
        with suppress(OSError):  # ended meanwhile
            for entry in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError, ValueError):  # closed meanwhile, or no socket
                    found.add(int(str(entry.readlink()).removeprefix("socket:[").removesuffix("]")))
    return frozenset(found)
