"""What is noted down of a run. Times are one monotonic clock's, in seconds; revisions are the storage's."""

from dataclasses import dataclass, field

ABSENT = 404
PRECONDITIONS = frozenset({404, 409, 410, 412, 422})
"""A write that was answered so has not been carried out."""

Value = tuple[str, str]
"""What two kinds of writers put into an object: those that replace it, and those that patch it. Each writes no text twice."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One revision of one object, as the storage kept it. value: None where it is deleted. claims: addresses and ports of
    which there is one each."""

    revision: int
    key: str
    value: Value | None
    uid: str = ""
    claims: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Write:
    """verb: create, update, patch or delete. text: what it writes, unlike that of every other write. expected: the revision
    that it insists on, None for any. status: None where nobody knows what became of it. revision, value: of the answer."""

    client: str
    server: str
    verb: str
    key: str
    text: str
    began: float
    ended: float
    expected: int | None = None
    status: int | None = None
    revision: int = 0
    value: Value | None = None

    @property
    def done(self) -> bool:
        return self.status is not None and self.status < 300


@dataclass(frozen=True, slots=True)
class Increment:
    """One client's attempt to raise a counter by one, from the revision it insists on. All clients write the same bytes.

    status: None where nobody knows what became of it. revision: of the answer.
    """

    client: str
    server: str
    key: str
    expected: int
    count: int
    status: int | None
    revision: int = 0

    @property
    def done(self) -> bool:
        return self.status is not None and self.status < 300


@dataclass(frozen=True, slots=True)
class Read:
    """One object (`key`), or all (`key` is empty). consistent: what was acknowledged before it began must be in it.

    items: key → (revision, value). revision: of a list; 0 where one object was read. server: with which start of it, so that
    what each shows can be followed.
    """

    client: str
    server: str
    began: float
    ended: float
    consistent: bool
    revision: int
    items: dict[str, tuple[int, Value]]
    key: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of a watch. kind: ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    revision: int
    key: str = ""
    value: Value | None = None


@dataclass(slots=True)
class Stream:
    """What a watcher heard from `since` on, over however many connections to however many servers, without a 410 or a list
    in between."""

    watcher: str
    since: int
    events: list[Seen] = field(default_factory=list)


@dataclass(slots=True)
class Fault:
    """What was done to whom, and how long it lasted."""

    what: str
    began: float
    ended: float


@dataclass(slots=True)
class History:
    """A whole run. finals: what each server lists in the end."""

    facts: list[Fact] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    increments: list[Increment] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    finals: dict[str, dict[str, tuple[int, Value]]] = field(default_factory=dict)
