"""Which other processes read what netfilter has, at this very moment.

The kernel tells of each netlink socket whether a dump goes on there (af_netlink.c, netlink_native_seq_show). It does not tell of
what: a dump of tracked connections looks the same.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER

_SOCKETS = Path("/proc/thread-self/net/netlink")
_OWN = Path("/proc/self/fd")


def netfilter_sockets() -> Mapping[str, bool]:
    """Those of other processes, by inode: whether a dump goes on there. Empty where nothing can be known."""
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
