"""What commands and the supervisor say to each other: JSON, one message per line, one request per connection.

The supervisor answers with any number of messages and closes. What a request started ends when its connection does.
Times are seconds, moments CLOCK_MONOTONIC.
"""

from msgspec import Struct

from nodeagent.lab.live.plan import Settings


class GetStatus(Struct, frozen=True, tag=True):
    """One Status."""


class Locate(Struct, frozen=True, tag=True):
    """One Place; the connection stays open for as long as the lab is there."""

    member: str


class GetLog(Struct, frozen=True, tag=True):
    """LogLines of the API server or an agent: the last `count`, and with `follow` those to come."""

    member: str
    count: int = 200
    follow: bool = False


class StartLoad(Struct, frozen=True, tag=True):
    """A LoadSample now and then, for as long as the connection is open.

    service: NAMESPACE/NAME. rate: connections a second, all clients together. every: seconds between samples.
    """

    service: str
    rate: float = 100.0
    protocol: str = "TCP"
    every: float = 0.5
    timeout: float = 3.0


class InjectFault(Struct, frozen=True, tag=True):
    """FaultProgress, then one FaultReport; under load of its own.

    node: empty for the first node, or where the fault has none. seconds: how long it lasts; 0: as is usual for it.
    """

    kind: str
    service: str
    node: str = ""
    seconds: float = 0.0
    rate: float = 100.0
    amount: float = 0.0


class Connect(Struct, frozen=True, tag=True):
    """Connected: `count` new connections from a member to an address, one after the other."""

    member: str
    address: str
    port: int
    count: int = 1
    protocol: str = "TCP"
    timeout: float = 3.0


class TakeDown(Struct, frozen=True, tag=True):
    """Done, when all is gone."""


Request = GetStatus | Locate | GetLog | StartLoad | InjectFault | Connect | TakeDown


class NodeStatus(Struct, frozen=True):
    """agent: what it does (running, stopped, frozen). programmed: (endpoints in the kernel, endpoints there should be)."""

    name: str
    addresses: tuple[str, ...]
    pod_cidrs: tuple[str, ...]
    agent: str
    restarts: int
    healthy: bool
    programmed: tuple[int, int]


class PodStatus(Struct, frozen=True):
    name: str
    node: str
    addresses: tuple[str, ...]
    ready: bool


class ServiceStatus(Struct, frozen=True):
    """addresses: where it answers, ready to be dialled: ``10.96.0.1:80/TCP``."""

    name: str
    kind: str
    addresses: tuple[str, ...]
    endpoints: int


class Status(Struct, frozen=True, tag=True):
    """A lab, as it is. api: running, stopped, or the URL of one elsewhere. faults: those in effect."""

    settings: Settings
    pid: int
    up_seconds: float
    api: str
    nodes: tuple[NodeStatus, ...]
    pods: tuple[PodStatus, ...]
    services: tuple[ServiceStatus, ...]
    faults: tuple[str, ...] = ()


class Place(Struct, frozen=True, tag=True):
    """Where a member lives; `kubeconfig` works there."""

    namespace: str
    kubeconfig: str


class LogLines(Struct, frozen=True, tag=True):
    lines: tuple[str, ...]


class TargetSample(Struct, frozen=True):
    """One way to the service, since the load began. latencies: see messages.LoadReport."""

    client: str
    target: str
    names: dict[str, int]
    failures: dict[str, int]
    latencies: dict[int, int]
    slowest: float

    @property
    def answered(self) -> int:
        return sum(self.names.values())

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class LoadSample(Struct, frozen=True, tag=True):
    """Everything the load has seen, in `seconds` until `at`.

    last_failure: when the latest failed connection was begun, 0 for none. horizon: what was begun before is counted.
    """

    at: float
    seconds: float
    targets: tuple[TargetSample, ...]
    last_failure: float
    horizon: float

    @property
    def answered(self) -> int:
        return sum(target.answered for target in self.targets)

    @property
    def failed(self) -> int:
        return sum(target.failed for target in self.targets)


class Connected(Struct, frozen=True, tag=True):
    """names: answers by pod. peers: what the pods saw as the client's address."""

    names: dict[str, int]
    failures: dict[str, int]
    peers: tuple[str, ...]
    seconds: float


class FaultProgress(Struct, frozen=True, tag=True):
    """One thing that was done, in words."""

    text: str


class FaultReport(Struct, frozen=True, tag=True):
    """What a fault cost.

    attempts, failed, failures, by_target: new connections in the `seconds` since the fault, how many failed, in which
    way, on which way. recovery: seconds from the fault until connections begun later all succeeded, 0 when none failed; None: never, while
    it was watched. after: the same, from the moment it was put right; None when nothing had to be.
    kept, held: connections open before, and those of them that still answered in the end.
    """

    kind: str
    what: str
    seconds: float
    attempts: int
    failed: int
    failures: dict[str, int]
    recovery: float | None
    after: float | None
    kept: int
    held: int
    by_target: dict[str, int] = {}
    note: str = ""


class Done(Struct, frozen=True, tag=True):
    """The request is carried out."""


class Refused(Struct, frozen=True, tag=True):
    """It was not, and why; `unusable`: it could not be, as it was given."""

    reason: str
    unusable: bool = False


Response = Status | Place | LogLines | LoadSample | Connected | FaultProgress | FaultReport | Done | Refused
