"""The ipsets of its ipvs mode, through netlink: no tool needed.

Message layout: linux/netfilter/ipset/ip_set.h and net/netfilter/ipset/ip_set_core.c. A set that an iptables rule
still uses cannot be destroyed, so rules go first.
"""

import errno
import os
from collections.abc import Iterable, Sequence

from nodeagent.dataplane.kube_proxy import names
from nodeagent.dataplane.kube_proxy.leftovers import Finding, LeftoverError
from nodeagent.netlink.framing import Request, attribute, attribute_map, string, text_of
from nodeagent.netlink.netfilter import u32
from nodeagent.netlink.socket import NetlinkSocket

NETLINK_NETFILTER = 12
_SUBSYSTEM = 6
_DESTROY, _LIST = 3, 7
_PROTOCOL, _SET_NAME, _FLAGS = 1, 2, 6
_PROTOCOL_VERSION = b"\x06"
_LIST_SET_NAME = 1 << 1
_ERR_BUSY = 4100
_ERR_REFERENCED = 4108
_GENMSG = b"\0\0\0\0"


def list_request() -> Request:
    """Asks for the names of all sets, without their members."""
    flags = u32(_FLAGS, _LIST_SET_NAME)
    return Request(_SUBSYSTEM << 8 | _LIST, 0, _GENMSG + attribute(_PROTOCOL, _PROTOCOL_VERSION) + flags)


def destroy_request(name: str) -> Request:
    """Destroys a set."""
    body = _GENMSG + attribute(_PROTOCOL, _PROTOCOL_VERSION) + string(_SET_NAME, name)
    return Request(_SUBSYSTEM << 8 | _DESTROY, 0, body)


def set_names(replies: Iterable[memoryview]) -> list[str]:
    """Of the replies to `list_request`."""
    found = []
    for reply in replies:
        attributes = attribute_map(reply[len(_GENMSG) :])
        if _SET_NAME in attributes:
            found.append(text_of(attributes[_SET_NAME]))
    return found


class Sets:
    """The sets whose names are kube-proxy's."""

    @property
    def name(self) -> str:
        return "ipset"

    def look(self) -> Finding:
        """Which there are. Raises OSError; a kernel without ipset has none."""
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            try:
                present = set_names(netlink.dump(list_request()))
            except OSError as error:
                if error.errno == errno.EINVAL:  # nfnetlink knows no such subsystem: no ipset, and no module for it
                    return Finding()
                raise
        ours = sorted(name for name in present if names.is_set(name))
        return Finding(tuple(f"set {name}" for name in ours), remove=lambda: _destroy(ours))


def _destroy(sets: Sequence[str]) -> None:
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        failures = netlink.perform(destroy_request(name) for name in sets)
    if failures:
        shown = ", ".join(f"{sets[failure.position]} ({_explain(failure.errno)})" for failure in failures)
        raise LeftoverError(f"not destroyed: {shown}")


def _explain(code: int) -> str:
    return "still used by a rule" if code in {_ERR_BUSY, _ERR_REFERENCED} else os.strerror(code)
