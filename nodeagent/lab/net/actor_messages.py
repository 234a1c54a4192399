"""The messages between a member (in the creator's process) and its actor (in the namespace): JSON, one per line.

Durations are seconds; times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from enum import Enum

from msgspec import Struct

from nodeagent.model.addresses import Protocol


class Failure(Enum):
    """Why a client got no answer, as the client sees it.

    REFUSED is a reset or an ICMP port unreachable to the first packet, DENIED a packet that was not sent (EPERM), RESET
    and CLOSED the end of an established connection; OTHER has its error text in `detail`.
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
    """One exchange: the server that answered and what it saw, or why there was no answer.

    peer, peer_port: the client as the server saw it. local, local_port: the address at which the server received it.
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


class Serve(Struct, frozen=True, tag=True):
    """Answers on these addresses until stopped, with `name` and what the server saw."""

    name: str
    protocol: Protocol
    port: int
    addresses: tuple[str, ...]


class Ask(Struct, frozen=True, tag=True):
    """Makes `count` new connections (UDP: sockets), `workers` at a time; each sends one question and closes."""

    dial: Dial
    count: int = 1
    workers: int = 1


class Hold(Struct, frozen=True, tag=True):
    """Opens `count` connections, sends a question on each, and keeps those that answered."""

    dial: Dial
    count: int = 1


class Exchange(Struct, frozen=True, tag=True):
    """Sends another question on every held connection."""

    task: int


class Ping(Struct, frozen=True, tag=True):
    """Sends `count` ICMP echo requests, one after the other."""

    address: str
    count: int = 1
    timeout: float = 1.0


class Load(Struct, frozen=True, tag=True):
    """Makes new connections until stopped: each worker one every `interval` seconds, the first after `delay` seconds.

    record: whether the final report lists each of them.
    """

    dial: Dial
    interval: float = 0.01
    workers: int = 1
    delay: float = 0.0
    record: bool = False


class Look(Struct, frozen=True, tag=True):
    """Asks for what a load has seen so far."""

    task: int


class Stop(Struct, frozen=True, tag=True):
    """Ends a task; the reply is its report."""

    task: int


Request = Serve | Ask | Hold | Exchange | Ping | Load | Look | Stop


class Answers(Struct, frozen=True, tag=True):
    answers: tuple[Answer, ...]


class Started(Struct, frozen=True, tag=True):
    """The task's number, used in later requests; for Hold also the first answers."""

    task: int
    answers: tuple[Answer, ...] = ()


class Stopped(Struct, frozen=True, tag=True):
    """A task that has no report has ended."""


class Record(Struct, frozen=True, array_like=True):
    """One connection of a load. started: when it began; seconds: until the answer of `name`, or the failure."""

    started: float
    seconds: float
    name: str
    failure: Failure | None = None


class LoadReport(Struct, frozen=True, tag=True):
    """What a load has seen.

    names: answers by server. failures: by kind. first, last: start of the first and the last answered connection by
    server. failed: the first hundred failures. slowest: seconds of the slowest answer. latencies: number of answers by
    microseconds, to two digits. last_failure: start of the latest failed connection; 0 if none failed. horizon: every
    connection that began before this time is counted. records: all connections in the order in which they ended; only
    after the end, if recording was asked for.
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


class Failed(Struct, frozen=True, tag=True):
    """The request failed (an address in use, an unknown task, a bug)."""

    reason: str


Reply = Answers | Started | Stopped | LoadReport | Failed


class NumberedRequest(Struct, frozen=True):
    """A request as it is sent; replies arrive in any order and carry its number."""

    number: int
    request: Request


class NumberedReply(Struct, frozen=True):
    number: int
    reply: Reply
