"""What is written down of a run. Times are seconds of the monotonic clock of the machine."""

from msgspec import Struct

FOREVER = 1e12
"""A time that never comes; JSON has no infinity."""
EVERYWHERE = "*"
"""The place of a fault that concerns every node."""


class Step(Struct, frozen=True, omit_defaults=True):
    """One thing that is done. pause: seconds after the previous step. where: a node, a Service, or empty. seconds: how long it
    lasts, 0 if it is not undone. choice: a number that decides the rest, always the same way."""

    kind: str
    where: str = ""
    pause: float = 0.0
    seconds: float = 0.0
    choice: int = 0


class Span(Struct, frozen=True):
    """A member belongs to a view from somewhen in [may_from, sure_from] to somewhen in [sure_until, may_until]. Views: the pods
    behind a frontend on a node, the answer to a name, the pods that are alive."""

    view: str
    member: str
    may_from: float
    sure_from: float
    sure_until: float = FOREVER
    may_until: float = FOREVER


class Fault(Struct, frozen=True):
    """What a step did, from its beginning until it was undone completely. where: a node, or EVERYWHERE."""

    kind: str
    where: str
    began: float
    ended: float


class Attempt(Struct, frozen=True):
    """A new connection. views: the frontend on each node that could translate it. nodes: these and the client's.
    service: whose frontend it is. pod: who answered; empty if it failed, with the reason in `failure`."""

    client: str
    service: str
    views: tuple[str, ...]
    nodes: tuple[str, ...]
    began: float
    ended: float
    pod: str = ""
    failure: str = ""


class Held(Struct, frozen=True):
    """A connection that stayed open. heard: its last answer. failure: why it ended; empty if the client closed it."""

    client: str
    nodes: tuple[str, ...]
    pod: str
    opened: float
    heard: float
    ended: float
    failure: str = ""


class Lookup(Struct, frozen=True):
    """A DNS query. answer: addresses in order, NO_NAME or NO_ADDRESS; empty if nothing came."""

    node: str
    view: str
    began: float
    ended: float
    answer: str = ""


class Beat(Struct, frozen=True):
    """How much slower than alone a piece of work was: 1 on an idle machine."""

    at: float
    factor: float


class Figure(Struct, frozen=True):
    """A number of a node, measured after quiet. fresh: the age of the process in seconds, or 0 if it is of no process."""

    at: float
    node: str
    name: str
    value: float


class Deviation(Struct, frozen=True):
    """Something that is not as it must be after quiet."""

    at: float
    node: str
    text: str


class End(Struct, frozen=True):
    """A program that ended by itself. program: "agent", "server" or "etcd". where: a node or a host. words: its last line."""

    at: float
    program: str
    where: str
    words: str


class Leak(Struct, frozen=True):
    """Packets to a ClusterIP that were seen between nodes, since the look before. flows: connections that had some in this run, each as
    "source source-port destination destination-port protocol"."""

    since: float
    at: float
    node: str
    packets: int
    flows: tuple[str, ...] = ()


class History(Struct, frozen=True):
    """A whole run."""

    steps: tuple[Step, ...] = ()
    spans: tuple[Span, ...] = ()
    faults: tuple[Fault, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    held: tuple[Held, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    beats: tuple[Beat, ...] = ()
    figures: tuple[Figure, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    leaks: tuple[Leak, ...] = ()
    ends: tuple[End, ...] = ()


NO_NAME = "no such name"
NO_ADDRESS = "no address"
FRONTENDS = "frontends"
"""The view of the views that exist: a frontend that is new may have the endpoints that its Service had before."""
ALIVE = "alive"
"""The view of the pods whose program runs."""
