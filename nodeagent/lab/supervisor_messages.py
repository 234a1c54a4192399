"""What commands and the supervisor say to each other: JSON, one message per line, one request per connection.

The supervisor answers with any number of messages and closes. What a request started ends when its connection does.
Times are seconds, moments CLOCK_MONOTONIC.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from nodeagent.lab.lab_plan import Settings
from nodeagent.model.addresses import endpoint_text, family_of


class GetStatus(Struct, frozen=True, tag=True):
    """One Status."""


class Locate(Struct, frozen=True, tag=True):
    """One MemberPlace; the connection stays open for as long as the lab is there."""

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
    """FaultProgress, then one FaultReport; under load of its own. With `record`, a FaultRecord follows.

    node: empty for the usual victim, or where the fault has none. seconds: how long it lasts, amount: how much of it;
    0 for either: as is usual for it.
    """

    kind: str
    service: str
    node: str = ""
    seconds: float = 0.0
    rate: float = 100.0
    amount: float = 0.0
    protocol: str = "TCP"
    record: bool = False


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


class ControlStatus(Struct, frozen=True):
    """A control-plane host. server, etcd: what they do (running, stopped, frozen). ready: the server says so. elected: it
    runs the controllers. leads: its member of etcd does."""

    name: str
    addresses: tuple[str, ...]
    server: str
    ready: bool
    elected: bool
    etcd: str
    leads: bool


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
    """A lab, as it is. api: running, stopped, how many of several run, or the URL of one elsewhere. control: the hosts
    of several. faults: those in effect."""

    settings: Settings
    pid: int
    up_seconds: float
    api: str
    control: tuple[ControlStatus, ...]
    nodes: tuple[NodeStatus, ...]
    pods: tuple[PodStatus, ...]
    services: tuple[ServiceStatus, ...]
    faults: tuple[str, ...] = ()


class MemberPlace(Struct, frozen=True, tag=True):
    """Where a member lives; `kubeconfig` works there. resolv_conf: the file that a pod has as /etc/resolv.conf; empty for
    a member that uses the machine's file."""

    namespace: str
    kubeconfig: str
    resolv_conf: str = ""

    def command(self, command: Sequence[str]) -> list[str]:
        """What runs a command there. `sh` looks it up on the path; `ip` gives it mounts of its own."""
        mount = f"mount --bind {shlex.quote(self.resolv_conf)} /etc/resolv.conf && " if self.resolv_conf else ""
        return ["ip", "netns", "exec", self.namespace, "sh", "-c", f'{mount}exec "$@"', "nodeagent", *command]


class LogLines(Struct, frozen=True, tag=True):
    lines: tuple[str, ...]


class ServicePath(Struct, frozen=True):
    """One way to a service. role: what the client is (pod, node, outside). kind: what the address is (ClusterIP, …)."""

    client: str
    role: str
    kind: str
    address: str
    port: int

    @property
    def text(self) -> str:
        """What is connected to."""
        return f"{self.kind} {endpoint_text(self.address, self.port)}"

    @property
    def family(self) -> str:
        return family_of(self.address).value


class WaySample(Struct, frozen=True):
    """What a load has seen on one way since it began. latencies: see messages.LoadReport.

    last_answer, last_failure: when the latest connection was begun that was answered, that failed; 0 for none.
    """

    way: ServicePath
    names: dict[str, int]
    failures: dict[str, int]
    latencies: dict[int, int]
    slowest: float
    last_answer: float = 0.0
    last_failure: float = 0.0

    @property
    def answered(self) -> int:
        return sum(self.names.values())

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class LoadSample(Struct, frozen=True, tag=True):
    """Everything the load has seen, in `seconds` until `at`. horizon: what was begun before is counted."""

    at: float
    seconds: float
    ways: tuple[WaySample, ...]
    horizon: float

    @property
    def answered(self) -> int:
        return sum(way.answered for way in self.ways)

    @property
    def failed(self) -> int:
        return sum(way.failed for way in self.ways)

    @property
    def last_failure(self) -> float:
        return max((way.last_failure for way in self.ways), default=0.0)


class Connected(Struct, frozen=True, tag=True):
    """names: answers by pod. peers: what the pods saw as the client's address."""

    names: dict[str, int]
    failures: dict[str, int]
    peers: tuple[str, ...]
    seconds: float


class FaultProgress(Struct, frozen=True, tag=True):
    """One thing that was done, in words."""

    text: str


class FaultVerdict(StrEnum):
    """What a fault came to. LOST: connections that it must not cost. LATE: Service changes took longer than they may."""

    NONE_FAILED = "none failed"
    RECOVERED = "recovered"
    LOST = "CONNECTIONS LOST"
    LATE = "CHANGES LATE"
    NOT_RECOVERED = "NOT RECOVERED"

    @property
    def good(self) -> bool:
        return self in (FaultVerdict.NONE_FAILED, FaultVerdict.RECOVERED)


class WayCost(Struct, frozen=True):
    """New connections on one way since a fault, and how those failed that did."""

    way: ServicePath
    attempts: int
    failures: dict[str, int]

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class FaultReport(Struct, frozen=True, tag=True):
    """What a fault cost.

    seconds: from the fault until the report. outage: from the fault until the last connection was begun that failed, 0
    when none was. recovery: the same from the moment at which the fault was over (put right, or done); None: connections
    still failed when nobody looked any longer. slowest: seconds that the slowest answer took, to two digits.
    kept, held: connections open before, and those of them that still answered in the end.
    seen: what showed that the fault was in effect.
    changes: Service changes that came into force meanwhile. slowest_change: seconds that the slowest took, None where
    nobody looked.
    """

    kind: str
    what: str
    verdict: FaultVerdict
    seconds: float
    ways: tuple[WayCost, ...]
    outage: float
    recovery: float | None
    slowest: float
    kept: int
    held: int
    seen: str = ""
    changes: int = 0
    slowest_change: float | None = None

    @property
    def attempts(self) -> int:
        return sum(way.attempts for way in self.ways)

    @property
    def failed(self) -> int:
        return sum(way.failed for way in self.ways)

    @property
    def failures(self) -> Counter[str]:
        """By kind."""
        total: Counter[str] = Counter()
        for way in self.ways:
            total.update(way.failures)
        return total


class Recorded(Struct, frozen=True, array_like=True):
    """One connection of the load. way: its number. at: when it was begun, in seconds after the fault; seconds: until the
    answer of `pod`, or until it failed in the way `failure` names, which is empty for one that was answered.
    """

    way: int
    at: float
    seconds: float
    pod: str
    failure: str


class FaultRecord(Struct, frozen=True, tag=True):
    """Every connection of the load under which a fault was made. ended: seconds after the fault when it was over."""

    kind: str
    ended: float
    ways: tuple[ServicePath, ...]
    connections: tuple[Recorded, ...]


class Done(Struct, frozen=True, tag=True):
    """The request is carried out."""


class Refused(Struct, frozen=True, tag=True):
    """It was not, and why; `unusable`: it could not be, as it was given."""

    reason: str
    unusable: bool = False


Reply = (
    Status
    | MemberPlace
    | LogLines
    | LoadSample
    | Connected
    | FaultProgress
    | FaultReport
    | FaultRecord
    | Done
    | Refused
)
