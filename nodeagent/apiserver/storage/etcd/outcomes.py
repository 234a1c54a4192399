"""What a failed call means: whether a write happened, and what to do. Pure."""

from enum import Enum
from typing import Final

_NEVER_SENT: Final = frozenset({"REFUSED", "FOREIGN"})
_NOT_PROPOSED: Final = ("no leader", "raft proposal dropped", "not capable", "too many requests")


class Outcome(Enum):
    """What became of a call that failed."""

    NOT_DONE = "not done"
    """Nothing happened; another member, or the same a little later, may do it."""
    UNKNOWN = "unknown"
    """A write may have happened, or may yet happen."""
    COMPACTED = "compacted"
    """The revision asked for is no longer kept."""
    FULL = "full"
    """The space etcd may use is exhausted."""
    TOO_LARGE = "too large"
    NO_LEASE = "no lease"
    DENIED = "denied"
    """These credentials may not do that."""
    ANOTHER = "another"
    """All who answer are members of another cluster."""
    WRONG = "wrong"
    """The call itself makes no sense."""


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
"""Code → the first words that are in the text, and what they mean."""


def outcome_of(code: str, text: str) -> Outcome:
    """By gRPC's code and etcd's words (api/v3rpc/rpctypes/error.go).

    "Leader changed" answers reads; where it should ever answer a write, nothing says that it did not happen.
    """
    if code in _NEVER_SENT or any(words in text for words in _NOT_PROPOSED):
        return Outcome.NOT_DONE
    return next((outcome for words, outcome in _BY_CODE.get(code, ()) if words in text), Outcome.UNKNOWN)
