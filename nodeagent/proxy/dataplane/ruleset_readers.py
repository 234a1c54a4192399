"""Finds out which other processes read netfilter's objects at this moment.

The kernel shows for each netlink socket whether a dump is in progress (af_netlink.c, netlink_native_seq_show). It does not show
of what: a dump of tracked connections looks the same.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER

_SOCKETS = Path("/proc/thread-self/net/netlink")
_OWN = Path("/proc/self/fd")
_NETFILTER = str(NETLINK_NETFILTER)


def netfilter_sockets() -> Mapping[str, bool]:
    """Returns the sockets, by inode, with whether a dump is in progress. Empty if that cannot be known.

    Those of this process are left out only if some socket is in a dump: finding them takes longer than all the rest.
    """
    try:
        header, *lines = _SOCKETS.read_bytes().decode().splitlines()
        names = header.split()
        family, dump, inode = (names.index(name) for name in ("Eth", "Dump", "Inode"))
    except (OSError, ValueError):
        return {}
    rows = [line.split() for line in lines]
    found = {row[inode]: row[dump] != "0" for row in rows if row[family] == _NETFILTER}
    own = _own_sockets() if any(found.values()) else frozenset()
    return {number: dumping for number, dumping in found.items() if number not in own}


def _own_sockets() -> frozenset[str]:
    found = set()
    for entry in _OWN.iterdir():
        with suppress(OSError):  # closed meanwhile
            found.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    return frozenset(found)
