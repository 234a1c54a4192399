"""Classifies failed calls: whether a write happened, and what to do. Pure."""

from enum import Enum
from typing import Final

_NEVER_SENT: Final = frozenset({"REFUSED", "FOREIGN"})
_NOT_PROPOSED: Final = ("no leader", "raft proposal dropped", "not capable", "too many requests")


class Outcome(Enum):
    """The result of a failed call."""

    NOT_DONE = "not done"
    """Nothing happened; another member, or the same a little later, may carry it out."""
    UNKNOWN = "unknown"
    """A write may have happened, or may yet happen."""
    COMPACTED = "compacted"
    """The requested revision is no longer kept."""
    FULL = "full"
    """etcd's space quota is exhausted."""
    TOO_LARGE = "too large"
    NO_LEASE = "no lease"
    DENIED = "denied"
    """The credentials do not permit it."""
    ANOTHER = "another"
    """All members that answer belong to another cluster."""
    WRONG = "wrong"
    """The call itself is invalid."""


_BY_CODE: Final = {
    "UNAUTHENTICATED": (("", Outcome.DENIED),),
    "PERMISSION_DENIED": (("", Outcome.DENIED),),
    "OUT_OF_RANGE": (("compacted", Outcome.COMPACTED), ("", Outcome.WRONG)),
    "RESOURCE_EXHAUSTED": (("space exceeded", Outcome.FULL), ("", Outcome.TOO_LARGE)),
    "NOT_FOUND": (("lease", Outcome.NO_LEASE), ("", Outcome.WRONG)),
    "INVALID_ARGUMENT": (("too large", Outcome.TOO_LARGE), ("user name is empty", Outcome.DENIED), ("", Outcome.WRONG)),
    "FAILED_PRECONDITION": (("", Outcome.WRONG),),
    "UNIMPLEMENTED": (("", Outcome.WRONG),),
}
"""Code → (text that the message contains, outcome), first match first."""


def outcome_of(code: str, text: str) -> Outcome:
    """Returns the outcome by gRPC's code and etcd's text (api/v3rpc/rpctypes/error.go). "Leader changed" is an answer to reads;
    if it ever answers a write, it does not prove that the write did not happen."""
    if code in _NEVER_SENT or any(words in text for words in _NOT_PROPOSED):
        return Outcome.NOT_DONE
    return next((outcome for words, outcome in _BY_CODE.get(code, ()) if words in text), Outcome.UNKNOWN)
