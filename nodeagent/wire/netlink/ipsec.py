"""Reads the policies of IPsec (linux/xfrm.h); pure."""

from typing import NamedTuple

from nodeagent.wire.netlink.framing import Request, reader

_GET_POLICY = 0x15
_POLICY_ID_LENGTH = 64
"""struct xfrm_userpolicy_id, which is zero in a dump request."""
_ACTION_AT = 161
"""In struct xfrm_userpolicy_info, after the selector, two sets of limits, priority, index and direction."""
_BLOCK = 1


class Policy(NamedTuple):
    """A policy. blocks: it drops what it matches; else packets go on, perhaps by a tunnel."""

    blocks: bool


def get_policies() -> Request:
    """Returns the request for a dump of all policies, except those of single sockets."""
    return Request(_GET_POLICY, 0, bytes(_POLICY_ID_LENGTH))


@reader
def read_policy(body: memoryview) -> Policy:
    """Returns one policy of the dump."""
    return Policy(body[_ACTION_AT] == _BLOCK)
