"""What can be wrong with an upstream server. Pure."""

from typing import NamedTuple

from nodeagent.wire.dns.codes import Rcode

SILENT, FAILING, SLOW, MALFORMED, NO_TCP, LOOP = "silent", "failing", "slow", "malformed", "no-tcp", "loop"
"""Does not answer; answers every question with an error; answers late; sends messages that answer no question of ours; does not
answer by TCP, although its answers by UDP are cut off; sends our questions back to us."""
USELESS = frozenset({SILENT, FAILING, MALFORMED, LOOP})
"""With one of these a server resolves no name."""
GOOD = frozenset({Rcode.NOERROR, Rcode.NXDOMAIN})


class ServerFault(NamedTuple):
    """What is wrong with an upstream server.
    kind: one of the words above. detail: the rcode, seconds or the system's error; empty if there is nothing to add."""

    kind: str
    detail: str = ""


def fault_of(rcode: int, seconds: float, slow: float) -> ServerFault | None:
    """Returns what is wrong with an answer that came after `seconds`; from `slow` seconds on it is late."""
    if rcode not in GOOD:
        return ServerFault(FAILING, Rcode(rcode).name if rcode in set(Rcode) else f"RCODE{rcode}")
    return ServerFault(SLOW, f"{seconds:.0f} s") if seconds >= slow else None
