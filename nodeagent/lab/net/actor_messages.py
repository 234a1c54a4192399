"""What a member (in the test's process) and its actor (in the namespace) say to each other: JSON, one per line.

Times are seconds; moments are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from enum import Enum

from msgspec import Struct

from nodeagent.model.addresses import Protocol


class Failure(Enum):
    """Why a client got no answer, as the client sees it.

    REFUSED is a reset or an ICMP port unreachable to the first packet, DENIED a packet that was not let out
    (EPERM), RESET and CLOSED the end of a connection that existed, OTHER has its error text in `detail`.
    """

    REFUSED = "refused"
    TIMEOUT = "timeout"
    RESET = "reset"
    CLOSED = "closed"
    UNREACHABLE = "unreachable"
    DENIED = "denied"
    OTHER = "other"


class Dial(Struct, frozen=True):
    """How to reach a server. `timeout` is for connecting and answering together.

    A TCP client with a fixed `source_port` ends its connections with a reset, so that the port is free again at once.
    """

    protocol: Protocol
    address: str
    port: int
    timeout: float = 3.0
    source_address: str | None = None
    source_port: int = 0
    mark: int | None = None
    priority: int | None = None


class Answer(Struct, frozen=True):
    """One exchange: who answered and what the server saw, or why nobody did.

    peer, peer_port: the client as the server saw it. local, local_port: the address at which the server got it.
    started: when the client began; seconds: until the answer or the failure.
    """

    name: str = ""
    peer: str = ""
    peer_port: int = 0
    local: str = ""
    local_port: int = 0
    started: float = 0.0
    seconds: float = 0.0
    failure: Failure | None = None
    detail: str = ""


class Packet(Struct, frozen=True):
    """An IP packet seen on an interface; ports are 0 where the protocol has none."""

    interface: str
    outgoing: bool
    source: str
    destination: str
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    length: int = 0


class Serve(Struct, frozen=True, tag=True):
    """Answer on these addresses until stopped, with `name` and what was seen."""

    name: str
    protocol: Protocol
    port: int
    addresses: tuple[str, ...]


class Ask(Struct, frozen=True, tag=True):
    """`count` new connections (UDP: sockets), `workers` at a time; each is asked once and closed."""

    dial: Dial
    count: int = 1
    workers: int = 1


class Hold(Struct, frozen=True, tag=True):
    """Open `count` connections, ask each once, and keep those that answered."""

    dial: Dial
    count: int = 1


class Exchange(Struct, frozen=True, tag=True):
    """Ask once more on every held connection."""

    task: int


class Ping(Struct, frozen=True, tag=True):
    """`count` ICMP echo requests, one after the other."""

    address: str
    count: int = 1
    timeout: float = 1.0


class Load(Struct, frozen=True, tag=True):
    """New connections, one every `interval` seconds and worker, until stopped; the first one after `delay` seconds.

    record: whether the report in the end has each of them.
    """

    dial: Dial
    interval: float = 0.01
    workers: int = 1
    delay: float = 0.0
    record: bool = False


class Sniff(Struct, frozen=True, tag=True):
    """Record IP packets on one interface (or all) until stopped."""

    interface: str | None = None


class Look(Struct, frozen=True, tag=True):
    """What a load or a recording has seen so far."""

    task: int


class Stop(Struct, frozen=True, tag=True):
    """End a task; the reply is its report."""

    task: int


Request = Serve | Ask | Hold | Exchange | Ping | Load | Sniff | Look | Stop


class Answers(Struct, frozen=True, tag=True):
    answers: tuple[Answer, ...]


class Started(Struct, frozen=True, tag=True):
    """The task's number, to be given back; for Hold also the first answers."""

    task: int
    answers: tuple[Answer, ...] = ()


class Stopped(Struct, frozen=True, tag=True):
    """A task without a report has ended."""


class Record(Struct, frozen=True, array_like=True):
    """One connection of a load. started: when it was begun; seconds: until the answer of `name`, or the failure."""

    started: float
    seconds: float
    name: str
    failure: Failure | None = None


class LoadReport(Struct, frozen=True, tag=True):
    """What a load has seen.

    names: answers by server. failures: by kind. first, last: moment of the first and last answer of each server
    (when the connection was begun). failed: the first hundred failures. slowest: seconds of the slowest answer.
    latencies: how many answers took that many microseconds, to two digits. last_failure: when the latest failed
    connection was begun; 0 for none. horizon: what was begun before this moment is counted. records: of a load that has
    ended and was to record; in the order in which they ended.
    """

    names: dict[str, int]
    failures: dict[Failure, int]
    first: dict[str, float]
    last: dict[str, float]
    failed: tuple[Answer, ...]
    slowest: float
    latencies: dict[int, int] = {}
    last_failure: float = 0.0
    horizon: float = 0.0
    records: tuple[Record, ...] = ()

    @property
    def attempts(self) -> int:
        return sum(self.names.values()) + sum(self.failures.values())


class Packets(Struct, frozen=True, tag=True):
    packets: tuple[Packet, ...]


class Failed(Struct, frozen=True, tag=True):
    """The request could not be carried out (an address in use, an unknown task, a bug)."""

    reason: str


Reply = Answers | Started | Stopped | LoadReport | Packets | Failed


class NumberedRequest(Struct, frozen=True):
    """A request on the wire; replies come in any order and carry the number."""

    number: int
    request: Request


class NumberedReply(Struct, frozen=True):
    number: int
    reply: Reply
