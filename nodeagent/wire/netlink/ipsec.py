"""Asks for the policies of IPsec (linux/xfrm.h); pure."""

from typing import NamedTuple

from nodeagent.wire.netlink.framing import Request, reader

_GET_POLICY = 0x15
_POLICY_ID_LENGTH = 64
"""struct xfrm_userpolicy_id, of which a dump says nothing."""
_ACTION_AT = 161
"""In struct xfrm_userpolicy_info, behind the selector, two sets of limits, priority, index and direction."""
_BLOCK = 1


class Policy(NamedTuple):
    """A policy. blocks: what it is about is dropped; else it goes on, by a tunnel perhaps."""

    blocks: bool


def get_policies() -> Request:
    """A dump of all policies that are not of one socket."""
    return Request(_GET_POLICY, 0, bytes(_POLICY_ID_LENGTH))


@reader
def read_policy(body: memoryview) -> Policy:
    """One of them."""
    return Policy(body[_ACTION_AT] == _BLOCK)
