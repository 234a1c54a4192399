"""The ipsets of kube-proxy's ipvs mode, through netlink: no tool needed.

Message layout: linux/netfilter/ipset/ip_set.h and net/netfilter/ipset/ip_set_core.c. A set that an iptables rule
still uses cannot be destroyed, so rules are removed first.
"""

import errno
import os
from collections.abc import Iterable, Sequence

from nodeagent.proxy.dataplane.kube_proxy import kube_proxy_names
from nodeagent.proxy.dataplane.kube_proxy.leftovers import Finding, LeftoverError
from nodeagent.wire.netlink.framing import Request, attribute_map, string, text_of
from nodeagent.wire.netlink.netfilter import GENMSG_LENGTH, genmsg, message_type, u8, u32
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi import ip_set as uapi
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER
from nodeagent.wire.netlink.uapi.nfnetlink import NFNL_SUBSYS_IPSET

_HEAD = genmsg(0) + u8(uapi.IPSET_ATTR_PROTOCOL, uapi.IPSET_PROTOCOL_MIN)


def list_request() -> Request:
    """Returns the request for the names of all sets, without their members."""
    flags = u32(uapi.IPSET_ATTR_FLAGS, uapi.IPSET_FLAG_LIST_SETNAME)
    return Request(message_type(NFNL_SUBSYS_IPSET, uapi.IPSET_CMD_LIST), 0, _HEAD + flags)


def destroy_request(name: str) -> Request:
    """Returns the request to destroy a set."""
    body = _HEAD + string(uapi.IPSET_ATTR_SETNAME, name)
    return Request(message_type(NFNL_SUBSYS_IPSET, uapi.IPSET_CMD_DESTROY), 0, body)


def set_names(replies: Iterable[memoryview]) -> list[str]:
    """Returns the names in the replies to `list_request`."""
    found = []
    for reply in replies:
        attributes = attribute_map(reply[GENMSG_LENGTH:])
        if uapi.IPSET_ATTR_SETNAME in attributes:
            found.append(text_of(attributes[uapi.IPSET_ATTR_SETNAME]))
    return found


class Sets:
    """The sets whose names are kube-proxy's."""

    @property
    def name(self) -> str:
        return "ipset"

    def look(self) -> Finding:
        """Returns the sets that exist. Raises OSError; without ipset in the kernel the finding is empty."""
        with NetlinkSocket(NETLINK_NETFILTER) as netlink:
            try:
                present = retry(lambda: set_names(netlink.dump(list_request())))
            except OSError as error:
                if error.errno == errno.EINVAL:  # nfnetlink knows no such subsystem: no ipset, and no module for it
                    return Finding()
                raise
        ours = sorted(name for name in present if kube_proxy_names.is_set(name))
        return Finding(tuple(f"set {name}" for name in ours), remove=lambda: _destroy(ours))


def _destroy(sets: Sequence[str]) -> None:
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        failed = retry(lambda: netlink.perform(destroy_request(name) for name in sets))
    failures = [one for one in failed if one.errno != errno.ENOENT]
    if failures:
        shown = ", ".join(f"{sets[failure.position]} ({_explain(failure.errno)})" for failure in failures)
        raise LeftoverError(f"not destroyed: {shown}")


def _explain(code: int) -> str:
    return "still used by a rule" if code in {uapi.IPSET_ERR_BUSY, uapi.IPSET_ERR_REFERENCED} else os.strerror(code)
