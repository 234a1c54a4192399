"""The errors between us and the kernel, by who must act.

DataplaneError
├── NotPermitted      no CAP_NET_ADMIN here, or another process owns our table: the operator
├── Unsupported       the kernel lacks something we need: the operator, with a newer kernel
├── CommitRejected    the kernel refused a transaction; nothing of it was applied: we repair and retry
├── StaleGeneration   another process changed the ruleset first; nothing was applied: we look and retry
└── KernelUnclear     lost replies: we read back and retry
    └── KernelBusy        the kernel had no memory, or an answer was lost, at every attempt: we wait and retry
        └── DumpInterrupted   others' changes interrupted every attempt to read: we wait and retry
"""

from dataclasses import dataclass

from nodeagent.model.problem import Interrupted, Retryable, Unusable

_SHOWN = 3
"""The number of rejections in the text of an error; `rejections` has all of them."""


class DataplaneError(Exception):
    """Base of everything the dataplane raises on purpose."""


class NotPermitted(DataplaneError, Unusable):
    """The kernel answered EPERM."""


class Unsupported(DataplaneError, Unusable):
    """The kernel does not know something the table needs; the text names it."""


class KernelUnclear(DataplaneError, Retryable):
    """What the kernel holds is not known; read it back."""


class KernelBusy(KernelUnclear):
    """The kernel did not answer for a reason that passes; ask again."""


class DumpInterrupted(KernelBusy, Interrupted):
    """A dump may be incomplete, because others changed the ruleset meanwhile; read again."""


class StaleGeneration(DataplaneError, Interrupted):
    """The ruleset does not have the generation that a transaction was made for; nothing of it was applied."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refused operation: what it was about, the errno, and for elements the set and the key at fault."""

    about: str
    errno: int
    reason: str
    set: str = ""
    key: bytes | None = None


class CommitRejected(DataplaneError, Retryable):
    """A batch was refused as a whole; `rejections` has every operation at fault, in order."""

    def __init__(self, rejections: tuple[Rejection, ...]) -> None:
        self.rejections = rejections
        shown = "; ".join(f"{item.about}: {item.reason}" for item in rejections[:_SHOWN])
        more = f" (and {len(rejections) - _SHOWN} more)" if len(rejections) > _SHOWN else ""
        super().__init__(f"the kernel rejected {shown}{more}")
