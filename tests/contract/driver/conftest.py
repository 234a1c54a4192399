"""A kernel of one's own for each test: an empty network namespace, entered by a thread; the test stays where it is."""

import asyncio
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar
from zlib import crc32

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.reports import DriftReport, PurgeReport, TableReport
from nodeagent.proxy.dataplane.driver.belief import Contents, Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.driver.early_reading import EarlyReading
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import KernelBusy
from nodeagent.proxy.dataplane.image.image import TableImage
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.schema import set_specs
from nodeagent.proxy.engine.sync import FATAL_FAILURES
from tests.harness.effort import SEED
from tests.harness.kernel_faults import KernelFaults

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
FLOWTABLE = os.environ.get("FLOWTABLE") == "1"
"""Whether these tests run with tables that offload connections: only on kernels that have flowtables (tests/boot/vm)."""
OPTIONS = ProgramOptions(PodDetection.CIDR, flowtable=FLOWTABLE)
SPECS = {spec.name: spec for spec in set_specs(counters=True)}
NODE = NodeState(
    ("10.96.0.0/16", "fd00:10:96::/112"),
    ("10.244.0.0/16", "fd00:244::/32"),
    ("192.168.0.2/32", "192.168.1.0/24", "2001:db8::2/128"),
)


class Agent:
    """A driver with its socket, as the agent holds them; `sync` is one pass."""

    def __init__(
        self,
        kernel: "Kernel",
        family: Family,
        ownership: Ownership,
        options: ProgramOptions,
        socket: Ruleset | None,
        early: EarlyReading | None,
    ) -> None:
        self._kernel = kernel
        self._alive = True
        self.socket = socket or kernel.busy_socket()
        self.purges: list[PurgeReport] = []
        self.drifts: list[DriftReport] = []
        self.purged: asyncio.Event | None = None
        self.driver = TableDriver(family, self.socket, options, ownership, self, early)

    def sync(self, *states: ServiceState, gone: tuple[ObjectKey, ...] = (), node: NodeState = NODE) -> TableReport:
        changes: Mapping[ObjectKey, ServiceState | None] = {s.key: s for s in states} | dict.fromkeys(gone)
        return self._until_clear(lambda: self.driver.sync(changes, node))

    def _until_clear(self, work: Callable[[], Coroutine[None, None, T]]) -> T:
        """What it returns in the end, as the engine does it while the kernel is busy."""
        for _ in range(FATAL_FAILURES - 1 if self._kernel.faults.proportion else 0):
            with suppress(KernelBusy):
                return self._kernel.run_async(work)
        return self._kernel.run_async(work)

    def affinity_purged(self, report: PurgeReport) -> None:
        self.purges.append(report)
        if self.purged is not None:
            self.purged.set()

    def drift_found(self, report: DriftReport) -> None:
        self.drifts.append(report)

    def purge(self) -> bool:
        """Forget clients of endpoints that left, as the agent does beside its passes."""
        attempts = FATAL_FAILURES if self._kernel.faults.proportion else 1
        return any(self._kernel.run_async(self.driver.purge) for _ in range(attempts))

    def changed_by_others(self) -> bool:
        return self._until_clear(self.driver.changed_by_others)

    def die(self) -> None:
        """What the kernel sees of a process that ends, however it does: its socket closes."""
        if self._alive:
            self.socket.close()
            self._alive = False


class Kernel:
    """The nf_tables of one network namespace."""

    def __init__(self, faults: KernelFaults) -> None:
        self.faults = faults
        self.nft_program = "nft"
        self._thread = ThreadPoolExecutor(1)
        self.run(_enter_new_namespace)
        self._runner = asyncio.Runner()
        self._reader = self.run(Ruleset)
        self._agents: list[Agent] = []

    def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, done inside."""
        return self._thread.submit(work).result()

    def run_async(self, work: Callable[[], Coroutine[None, None, T]]) -> T:
        """What `work` returns or raises, in the loop of this kernel's thread."""
        return self.run(lambda: self._runner.run(work()))

    def busy_socket(self) -> Ruleset:
        """A socket of an agent: some of its requests fail."""
        with self.faults.opened():
            return self.run(Ruleset)

    def start(
        self,
        ownership: Ownership = Ownership.PLAIN,
        family: Family = Family.IPV4,
        options: ProgramOptions = OPTIONS,
        *,
        socket: Ruleset | None = None,
        early: EarlyReading | None = None,
    ) -> Agent:
        """An agent's driver, over a socket of its own or over that of the other family's. early: a table that was read before."""
        agent = Agent(self, family, ownership, options, socket, early)
        self._agents.append(agent)
        return agent

    def command(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        return self.run(
            lambda: subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=60)
        )

    def nft(self, text: str) -> str:
        """What nft prints; it must succeed."""
        done = self.command(self.nft_program, "-f", "-", stdin=text)
        assert done.returncode == 0, f"{text}: {done.stderr}"
        return done.stdout

    @contextmanager
    def foreign_writer(self, text: str, *, every: float) -> Iterator[None]:
        """Another process that gives nft this text again and again, so many seconds apart at most."""
        loop = f"while :; do {self.nft_program} -f - <<< '{text}' & sleep {every}; wait; done"
        before = self.generation()
        process = self.run(lambda: subprocess.Popen(["bash", "-c", loop], process_group=0))
        try:
            while self.generation() < before + 4:
                assert process.poll() is None
                time.sleep(0.01)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextmanager
    def storm(self) -> Iterator[None]:
        """Another socket that changes a table of its own as fast as it can."""
        ended = threading.Event()

        def write() -> None:
            socket = Ruleset()
            change = Transaction(Family.IPV4, {})
            change.probe_owned_table("theirs")
            while not ended.is_set():
                socket.commit(change)
            socket.close()

        writing = threading.Thread(target=write)
        before = self.generation()
        self.run(writing.start)  # a thread begins in the namespace of the one that starts it
        try:
            while self.generation() < before + 4:
                assert writing.is_alive()
            yield
        finally:
            ended.set()
            writing.join()

    def generation(self) -> int:
        """Of the ruleset: every commit by anybody counts."""
        return self.run(self._reader.generation)

    def contents(self, family: Family = Family.IPV4) -> Contents:
        """Our table as the kernel has it."""
        found = self.run(KernelTable(self._reader, family, SPECS).read)
        assert found is not None, "there is no table"
        return found

    def image(self, family: Family = Family.IPV4) -> TableImage:
        """The elements of our table."""
        return self.contents(family).image

    def elements(self, name: str, family: Family = Family.IPV4) -> dict[bytes, bytes]:
        """The elements of one set."""
        return self.run(lambda: KernelTable(self._reader, family, SPECS).elements(name).elements)

    def expirations(self, family: Family = Family.IPV4) -> dict[bytes, tuple[int, int]]:
        """Of learned affinity: key → (timeout, remaining), in milliseconds."""
        return self.run(lambda: KernelTable(self._reader, family, SPECS).elements(schema.AFFINITY).expirations)

    def close(self) -> None:
        """The namespace ends with its last thread and socket."""
        for agent in self._agents:
            agent.die()
        self._reader.close()
        self.run(self._runner.close)
        self._thread.shutdown()


def _enter_new_namespace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """A kernel that is busy for agents, unless the test is marked `calm_kernel`. It answers commits: many a test states what one
    pass did."""
    faults = KernelFaults(crc32(request.node.nodeid.encode()) + SEED, commits_are_answered=True)
    if request.node.get_closest_marker("calm_kernel"):
        faults.proportion = 0.0
    made = Kernel(faults)
    yield made
    made.close()
    print(faults)


@pytest.fixture(scope="session")
def service() -> Callable[..., ServiceState]:
    """service("web", "10.96.0.10", "10.244.1.1", …): a ClusterIP with these endpoints (those in 10.244.1.* are local).

    Keywords: `affinity` seconds, `node_port`, `allowed` CIDRs of a load-balancer address, which is `at`.
    """

    def build(
        name: str,
        address: str,
        *endpoints: str,
        affinity: int | None = None,
        allowed: tuple[str, ...] | None = None,
        node_port: int = 0,
        at: str = "",
    ) -> ServiceState:
        key = ObjectKey("default", name)
        port = ServicePortName(key, "http", Protocol.TCP)
        family = Family.IPV6 if ":" in address else Family.IPV4
        backends = tuple(Backend(each, 8080, local=each.startswith(("10.244.1.", "fd00:244:1:"))) for each in endpoints)
        route = Route(backends)

        def frontend(kind: FrontendKind, at: str | None, number: int) -> Frontend:
            masquerade = kind is not FrontendKind.CLUSTER_IP
            return Frontend(
                kind, family, at, Protocol.TCP, number, port, route, None, masquerade, affinity,
                allowed if kind is FrontendKind.LOAD_BALANCER else None,
            )  # fmt: skip

        frontends = [frontend(FrontendKind.CLUSTER_IP, address, 80)]
        if allowed is not None:
            balancer = "198.51.100.1" if family is Family.IPV4 else "2001:db8:100::1"
            frontends.append(frontend(FrontendKind.LOAD_BALANCER, at or balancer, 80))
        if node_port:
            frontends.append(frontend(FrontendKind.NODE_PORT, None, node_port))
        return ServiceState(key, cluster_ips=(address,), frontends=tuple(frontends))

    return build
