"""The messages between commands and the supervisor: JSON, one message per line, one request per connection.

The supervisor sends any number of replies and closes. What a request started ends with its connection. Durations are
seconds, times CLOCK_MONOTONIC.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from nodeagent.lab.lab_plan import Settings
from nodeagent.model.addresses import endpoint_text, family_of


class GetStatus(Struct, frozen=True, tag=True):
    """Answered by one Status."""


class Locate(Struct, frozen=True, tag=True):
    """Answered by one MemberPlace; the connection stays open as long as the lab runs."""

    member: str


class GetLog(Struct, frozen=True, tag=True):
    """Answered by LogLines of an API server or agent: the last `count`, and with `follow` also later ones."""

    member: str
    count: int = 200
    follow: bool = False


class StartLoad(Struct, frozen=True, tag=True):
    """Answered by a LoadSample every `every` seconds, as long as the connection is open.

    service: NAMESPACE/NAME. rate: connections per second, of all clients together.
    """

    service: str
    rate: float = 100.0
    protocol: str = "TCP"
    every: float = 0.5
    timeout: float = 3.0


class InjectFault(Struct, frozen=True, tag=True):
    """Asks for a fault under a load of its own. The replies are FaultProgress messages, one FaultReport and, with
    `record`, a FaultRecord.

    node: the node or server to break; empty for the default. seconds, amount: how long the fault lasts, and how large it is;
    0 for the default.
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
    """Answered by Connected: `count` new connections from a member to an address, one after the other."""

    member: str
    address: str
    port: int
    count: int = 1
    protocol: str = "TCP"
    timeout: float = 3.0


class TakeDown(Struct, frozen=True, tag=True):
    """Answered by Done, when the lab is removed."""


Request = GetStatus | Locate | GetLog | StartLoad | InjectFault | Connect | TakeDown


class NodeStatus(Struct, frozen=True):
    """The status of a node of the lab.
    agent: its state (running, stopped, frozen). programmed: (endpoints in the kernel, expected endpoints)."""

    name: str
    addresses: tuple[str, ...]
    pod_cidrs: tuple[str, ...]
    agent: str
    restarts: int
    healthy: bool
    programmed: tuple[int, int]


class ControlStatus(Struct, frozen=True):
    """A control-plane host. server, etcd: their states (running, stopped, frozen). ready: the server reports that it is
    ready. elected: it runs the controllers. leads: its etcd member is the leader."""

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
    """The status of a Service in the lab. addresses: where it answers, in the form ``10.96.0.1:80/TCP``."""

    name: str
    kind: str
    addresses: tuple[str, ...]
    endpoints: int


class Status(Struct, frozen=True, tag=True):
    """The present state of a lab. api: running, stopped, how many of several run, or the URL of one elsewhere. control:
    the hosts, if there are several. faults: those in effect."""

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
    """Where a member runs; `kubeconfig` works there. resolv_conf: the file for a pod's /etc/resolv.conf; empty for a
    member that uses the machine's file."""

    namespace: str
    kubeconfig: str
    resolv_conf: str = ""

    def command(self, command: Sequence[str]) -> list[str]:
        """Returns a command line that runs a command there. `sh` finds it on the path; `ip` makes a mount namespace."""
        mount = f"mount --bind {shlex.quote(self.resolv_conf)} /etc/resolv.conf && " if self.resolv_conf else ""
        return ["ip", "netns", "exec", self.namespace, "sh", "-c", f'{mount}exec "$@"', "nodeagent", *command]


class LogLines(Struct, frozen=True, tag=True):
    lines: tuple[str, ...]


class ServicePath(Struct, frozen=True):
    """A path to a service. role: of the client (pod, node, outside). kind: of the address (ClusterIP, …)."""

    client: str
    role: str
    kind: str
    address: str
    port: int

    @property
    def text(self) -> str:
        """The address, with its kind."""
        return f"{self.kind} {endpoint_text(self.address, self.port)}"

    @property
    def family(self) -> str:
        return family_of(self.address).value


class WaySample(Struct, frozen=True):
    """What a load has seen on one path since the start. latencies: see actor_messages.LoadReport.

    last_answer, last_failure: start of the latest connection that was answered, that failed; 0 before the first.
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
    """What the load has seen in `seconds` until `at`. horizon: every connection that began before this time is counted."""

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
    """The result of a number of connections. names: answers by pod. peers: the client addresses that the pods saw."""

    names: dict[str, int]
    failures: dict[str, int]
    peers: tuple[str, ...]
    seconds: float


class FaultProgress(Struct, frozen=True, tag=True):
    """A step of the fault that was done, as text for users."""

    text: str


class FaultVerdict(StrEnum):
    """The verdict on a fault. LOST: it cost connections that it must not cost. LATE: Service changes took too long."""

    NONE_FAILED = "none failed"
    RECOVERED = "recovered"
    LOST = "CONNECTIONS LOST"
    LATE = "CHANGES LATE"
    NOT_RECOVERED = "NOT RECOVERED"

    @property
    def good(self) -> bool:
        return self in (FaultVerdict.NONE_FAILED, FaultVerdict.RECOVERED)


class WayCost(Struct, frozen=True):
    """New connections on one path since a fault, and the failures by kind."""

    way: ServicePath
    attempts: int
    failures: dict[str, int]

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class FaultReport(Struct, frozen=True, tag=True):
    """What a fault cost.

    seconds: from the fault until the report. outage: from the fault until the start of the last connection that failed,
    0 if none did. recovery: the same from the moment when the fault was over (repaired, or done); None: connections
    still failed at the end. slowest: seconds of the slowest answer, to two digits. kept, held: connections open before,
    and those of them that still answered in the end. seen: what showed that the fault was in effect. changes: Service
    changes that took effect meanwhile. slowest_change: seconds of the slowest, None if changes were not watched.
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
    """One connection of the load. way: its number. at: its start, in seconds after the fault; seconds: until the answer
    of `pod`, or until it failed. failure: the kind of failure; empty for an answer."""

    way: int
    at: float
    seconds: float
    pod: str
    failure: str


class FaultRecord(Struct, frozen=True, tag=True):
    """Every connection of the load during a fault. ended: seconds after the fault when it was over."""

    kind: str
    ended: float
    ways: tuple[ServicePath, ...]
    connections: tuple[Recorded, ...]


class Done(Struct, frozen=True, tag=True):
    """The request was carried out."""


class Refused(Struct, frozen=True, tag=True):
    """The request was not carried out, and why; `unusable`: because the request was invalid."""

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
