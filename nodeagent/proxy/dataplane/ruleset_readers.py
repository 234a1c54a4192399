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


def netfilter_sockets() -> Mapping[str, bool]:
    """Returns the sockets of other processes, by inode, with whether a dump is in progress. Empty if that cannot be known."""
    try:
        header, *lines = _SOCKETS.read_text().splitlines()
    except (OSError, ValueError):
        return {}
    names = header.split()
    rows = (dict(zip(names, line.split(), strict=False)) for line in lines)
    found = {row["Inode"]: row["Dump"] != "0" for row in rows if row["Eth"] == str(NETLINK_NETFILTER)}
    own = _own_sockets() if found else frozenset()
    return {inode: dumping for inode, dumping in found.items() if inode not in own}


def _own_sockets() -> frozenset[str]:
    found = set()
    for entry in _OWN.iterdir():
        with suppress(OSError):  # closed meanwhile
            found.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    return frozenset(found)
