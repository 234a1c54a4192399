"""The composition root: the only place that builds the parts and says what starts, in which order, and stops.

source ──▶ store ──▶ changes ──▶ engine ──▶ tables (ip, ip6), service interface
                                    └─────▶ observers: log, health servers, events
"""

import asyncio
import logging
import os
import resource
import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

from nodeagent.config import AgentConfig, TableOwnership
from nodeagent.dataplane.conntrack import ConntrackCleaner
from nodeagent.dataplane.errors import Unsupported
from nodeagent.dataplane.interface import ServiceInterface
from nodeagent.dataplane.interface_watch import InterfaceWatch
from nodeagent.dataplane.nft.belief import Ownership
from nodeagent.dataplane.nft.driver import TableDriver
from nodeagent.dataplane.nft.ownership import probe_ownership
from nodeagent.dataplane.nft.ruleset import Ruleset
from nodeagent.dataplane.node_addresses import LocalAddress, NodeAddresses
from nodeagent.dataplane.surroundings import Surroundings
from nodeagent.dataplane.sysctl import (
    Sysctl,
    SysctlOutcome,
    apply_sysctls,
    check_sysctls,
    required_sysctls,
)
from nodeagent.engine.changes import ChangeQueue
from nodeagent.engine.sync import Engine, Timing
from nodeagent.kube.api_source import ApiServerSource
from nodeagent.kube.client import ApiClient
from nodeagent.kube.configured_ranges import WithConfiguredCidrs
from nodeagent.kube.event_api import EventApi
from nodeagent.kube.manifest_source import ManifestSource
from nodeagent.kube.store import ClusterStore
from nodeagent.model.addresses import Family
from nodeagent.model.backoff import Backoff
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.reports import CleaningReport, PassReport, PurgeReport
from nodeagent.observe.event_documents import CONTROLLER, node_regarding, starting
from nodeagent.observe.events import EventRecorder, ProblemEvents
from nodeagent.observe.health import is_node_eligible
from nodeagent.observe.health_monitor import HealthMonitor
from nodeagent.observe.http import HttpServer
from nodeagent.observe.last_guard import LastGuard
from nodeagent.observe.pass_log import PassLog, ProblemLog
from nodeagent.observe.problem_board import ProblemBoard, ProblemChanges, ProblemListener
from nodeagent.observe.service_health import ServiceHealth
from nodeagent.observe.status_line import StatusLine
from nodeagent.observe.systemd import SystemdNotifier
from nodeagent.observe.waiting import StartWait
from nodeagent.settings import cluster_access, conntrack_settings, describe_source, node_settings, program_options

logger = logging.getLogger(__name__)

NODE_PATIENCE_SECONDS = 30.0
"""How long the first pass waits for the Node and the service CIDRs; the figure is kube-proxy's."""
GUARD_SECONDS = 0.5
PLAIN_GUARD_SECONDS = 0.1
"""Between looks whether somebody flushed our tables, which costs connections until the repair (a look is 21 µs)."""


class ProblemsRemain(Exception):
    """All is programmed that can be, and not all objects are in effect; one line for a person."""


class NotInTime(Exception):
    """A single run did not end within the time it was given; one line says what it was waiting for."""


class Source(Protocol):
    """Where the cluster's objects come from: an API server or manifests."""

    async def run(self) -> None:
        """Feed the store until cancelled."""
        ...


class Agent:
    """One node's service proxy under one configuration.

    netlink: the owner of owned tables; it outlives the agent, so that a successor takes the tables over.
    take_over: ends the predecessor, whose tables these are until then. It is awaited once all is known that is to be
    programmed, so that changes are followed all the time.

    Raises (from `run`): KubeconfigError and ManifestError when the source cannot be opened, NotPermitted and
    Unsupported when this kernel or process cannot do the work, SyncFailedError when programming keeps failing,
    BindFailed when a server's address is taken and the configuration does not let it wait; with `once` NotInTime and
    ProblemsRemain.
    """

    def __init__(
        self,
        config: AgentConfig,
        environment: dict[str, str],
        *,
        netlink: Ruleset,
        notifier: SystemdNotifier,
        take_over: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._config = config
        self._environment = environment
        self._netlink = netlink
        self._notifier = notifier
        self._take_over = take_over
        self._log = PassLog(lambda seconds, action: asyncio.get_running_loop().call_later(seconds, action))
        self._guard = LastGuard()
        self._status_line = StatusLine(config.node.name)
        self._node = node_regarding(config.node.name)
        self._ready = False
        self._api_server = ""

    async def run(self, *, once: bool, within_seconds: float | None = None) -> None:
        """Until cancelled; with `once`, until the present state is programmed, for `within_seconds` seconds at most (None: as
        long as it takes). Rules stay in place either way."""
        try:
            async with asyncio.timeout(within_seconds) as limit:
                await self._run(once=once)
        except TimeoutError as error:
            if within_seconds is None or not limit.expired():
                raise
            raise NotInTime(f"not done within {within_seconds:g} seconds: {self._wait}") from error

    async def _run(self, *, once: bool) -> None:
        config = self._config
        _set_oom_score(config.process.oom_score_adj)
        _raise_file_limit()
        async with AsyncExitStack() as stack:
            stack.callback(self._log.flush)
            families = choose_families(config.node.families)
            clock = asyncio.get_running_loop().time
            changes = ChangeQueue(clock)
            self._health = HealthMonitor(
                changes,
                families,
                timeout=2 * config.dataplane.sync_period.seconds,
                clock=clock,
                wall=_utc_now,
                node_eligible=self._is_node_eligible,
            )
            self._store = store = ClusterStore(self._health, on_problems=self._reporter("sources"))
            self._wait = StartWait(
                describe_source(config),
                store,
                self._notifier,
                say=self._notifier.status if self._take_over is None else lambda _: None,
            )
            client = await self._open_client(stack)
            source = self._source(client, store)
            recorder = None if once or client is None else self._event_recorder(client, clock)
            self._board = ProblemBoard(self._problem_listeners(recorder))
            self._service_health = ServiceHealth(
                is_healthy=self._health.is_healthy, report=self._reporter("service health")
            )
            node_addresses = NodeAddresses(self, excluding=frozenset({config.dataplane.interface_name}))
            self._surroundings = await self._look_around(changes)
            self._cleaner = cleaner = ConntrackCleaner(self)
            async with asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(source.run(), name="source")
                if self._take_over is None:
                    ownership = self._own_tables(families)
                    self._notifier.status(f"waiting for services and endpoints from {describe_source(config)}")
                    self._serve(tasks, recorder, once=once)
                    await self._wait.until(changes.wait_synced(NODE_PATIENCE_SECONDS))
                else:
                    await self._wait.until(changes.wait_synced(NODE_PATIENCE_SECONDS))
                    await self._take_over()
                    self._take_over = None  # it holds the predecessor, and with it all that one knew
                    ownership = self._own_tables(families)
                    self._serve(tasks, recorder, once=once)
                self._set_sysctls(required_sysctls(families))
                interface = (
                    ServiceInterface(config.dataplane.interface_name) if config.dataplane.service_interface else None
                )
                tables = tuple(
                    TableDriver(family, self._netlink, program_options(config, family), ownership, self)
                    for family in families
                )
                engine = self._engine(families, store, changes, cleaner, ownership, tables, interface)
                if once:
                    await engine.first_pass(every_family=True)
                    for table in tables:
                        await table.purge()
                    self.node_addresses_changed(await node_addresses.read())
                    await cleaner.clean()
                    feeding.cancel()
                else:
                    tasks.create_task(node_addresses.run(), name="node addresses")
                    tasks.create_task(self._surroundings.run(), name="surroundings")
                    tasks.create_task(cleaner.run(), name="conntrack cleaner")
                    _look_after(tasks, tables, interface, changes)
                    tasks.create_task(engine.run(), name="engine")
            if once:
                self._raise_if_problems_remain()

    def _own_tables(self, families: tuple[Family, ...]) -> Ownership:
        """How the tables are owned; from here on they are ours alone."""
        ownership = choose_ownership(self._netlink, self._config.dataplane.table_ownership)
        logger.info(
            "starting node=%s families=%s table=%s source=%s",
            self._config.node.name,
            ",".join(family.value for family in families),
            ownership.value,
            describe_source(self._config),
        )
        return ownership

    def _engine(
        self,
        families: tuple[Family, ...],
        store: ClusterStore,
        changes: ChangeQueue,
        cleaner: ConntrackCleaner,
        ownership: Ownership,
        tables: tuple[TableDriver, ...],
        interface: ServiceInterface | None,
    ) -> Engine:
        """The engine and its drivers."""
        config = self._config
        return Engine(
            snapshot=WithConfiguredCidrs(store, config.traffic.service_cidrs),
            changes=changes,
            settings=node_settings(config, families),
            tables=tables,
            interface=interface,
            flows=cleaner,
            observer=self,
            heartbeat=self._notifier,
            in_use=lambda: self._surroundings.in_use,
            timing=Timing(
                guard_period=PLAIN_GUARD_SECONDS if ownership is Ownership.PLAIN else GUARD_SECONDS,
                min_period=config.dataplane.min_sync_period.seconds,
                resync_period=config.source.resync_period.seconds,
                full_sync_period=config.dataplane.full_sync_period.seconds,
                backoff=Backoff(longest_seconds=config.dataplane.sync_period.seconds),
            ),
        )

    def passed(self, report: PassReport) -> None:
        """Tell everyone who wants to know of a pass."""
        self._guard.call(self._log.passed, report, report.changed)
        self._board.replace("sync", report.problems)
        self._guard.call(self._health.passed, report, report.changed)
        self._guard.call(self._service_health.passed, report, report.changed)
        status = self._status_line.passed(report, len(self._board.problems))
        if report.programmed and not self._ready:
            self._ready = True
            self._surroundings.look_again()  # the API server's own Service is known now
            # Wanted only once the tables are there: they bring in nf_conntrack on a machine that has just booted.
            self._set_sysctls(
                required_sysctls((), conntrack=conntrack_settings(self._config), cores=os.cpu_count() or 1)
            )
            self._notifier.ready(status)
            logger.info("ready: %s", status)
        else:
            self._notifier.status(status)

    def problems_changed(self, changes: ProblemChanges) -> None:  # noqa: ARG002 - what counts is how many there are
        """Called when problems came or went, which needs no pass: a file that cannot be read changes no object."""
        if self._ready:
            self._notifier.status(self._status_line.counted(len(self._board.problems)))

    def _raise_if_problems_remain(self) -> None:
        """What is wrong with the configuration alone is told and does not count: every object may be in effect."""
        remaining = [problem for problem in self._board.problems if not problem.subject.startswith("configuration ")]
        if remaining:
            more = f", and {len(remaining) - 1} more (see the log)" if len(remaining) > 1 else ""
            raise ProblemsRemain(f"not everything is in effect: {remaining[0]}{more}; --allow-problems accepts that")

    def node_addresses_changed(self, addresses: frozenset[LocalAddress]) -> None:
        """Node ports answer at these, so tracked flows to them are cleaned too, and health check ports follow."""
        local = frozenset(one.address for one in addresses)
        self._cleaner.node_addresses_changed(local)
        self._service_health.node_addresses_changed(local)
        self._surroundings.look_again()

    def conntrack_cleaned(self, report: CleaningReport) -> None:
        """Say what the cleaner did, when it did something."""
        if report.deleted:
            logger.info(
                "conntrack %s: ended %d UDP flows to endpoints that are gone", report.family.value, report.deleted
            )

    def affinity_purged(self, report: PurgeReport) -> None:
        """Say what was forgotten."""
        logger.info(
            "affinity %s: forgot %d clients of endpoints that are gone, in %.2f s",
            report.family.value,
            report.forgotten,
            report.seconds,
        )

    def _serve(self, tasks: asyncio.TaskGroup, recorder: EventRecorder | None, *, once: bool) -> None:
        """Start what others ask, if we stay: a load balancer must not find silence while lists load."""
        if once:
            return
        reporting = self._config.reporting
        if recorder is not None:
            recorder.record(starting(self._node))
            tasks.create_task(recorder.run(), name="events")
        if reporting.healthz_bind_address is not None:
            healthz = HttpServer(
                *reporting.healthz_bind_address,
                self._health.answer,
                name="healthz server",
                failure="FailedToStartProxierHealthcheck",
                report=self._reporter("healthz server"),
                hard_fail=reporting.bind_address_hard_fail,
            )
            tasks.create_task(healthz.run(), name="healthz server")
        tasks.create_task(self._service_health.run(), name="service health")

    def _reporter(self, source: str) -> Callable[[Iterable[Problem]], None]:
        return lambda problems: self._board.replace(source, problems)

    def _problem_listeners(self, recorder: EventRecorder | None) -> tuple[ProblemListener, ...]:
        if recorder is None:
            return (ProblemLog(), self)
        return (ProblemLog(), self, ProblemEvents(recorder.record, node=self._node, uid_of=self._store.uid_of))

    def _event_recorder(self, client: ApiClient, clock: Callable[[], float]) -> EventRecorder | None:
        if not self._config.reporting.events:
            return None
        return EventRecorder(
            EventApi(client),
            instance=f"{CONTROLLER}-{self._config.node.name}",
            clock=clock,
            wall=_utc_now,
            suffixes=lambda: secrets.token_hex(8),
        )

    async def _look_around(self, changes: ChangeQueue) -> Surroundings:
        """What service ranges must keep clear of, read once."""
        interface = self._config.dataplane.interface_name
        surroundings = Surroundings(changes.node_changed, excluding=interface, others=self._named_addresses)
        await surroundings.read()
        return surroundings

    def _named_addresses(self) -> tuple[tuple[str, str], ...]:
        """The API server, unless its address is that of its own Service."""
        kubernetes = self._store.services.get(ObjectKey("default", "kubernetes"))
        own = kubernetes.spec.cluster_ips or () if kubernetes is not None else ()
        return ((self._api_server, "the API server"),) if self._api_server and self._api_server not in own else ()

    def _is_node_eligible(self) -> bool:
        """Manifests without a Node say nothing about it: only an API server can tell that a node was removed."""
        if self._store.node_gone and self._config.source.manifests is not None:
            return True
        return is_node_eligible(self._store.node, gone=self._store.node_gone)

    async def _open_client(self, stack: AsyncExitStack) -> ApiClient | None:
        if self._config.source.manifests is not None:
            return None
        access = cluster_access(self._config, self._environment)
        if self._config.source.kubeconfig or self._config.source.master:  # else a pod's environment, a ClusterIP
            self._api_server = urlsplit(access.server).hostname or ""
        client = ApiClient(access)
        logger.info("API server: %s", client.server)
        return await stack.enter_async_context(client)

    def _source(self, client: ApiClient | None, store: ClusterStore) -> Source:
        source = self._config.source
        name = self._config.node.name
        if client is None:
            assert source.manifests is not None, "without manifests there is a client"
            return ManifestSource(source.manifests, store, node_name=name)
        return ApiServerSource(client, store, node_name=name, endpoints_api=source.endpoints_api.value)

    def _set_sysctls(self, required: Iterable[Sysctl]) -> None:
        """Each on its own, with one line for what was changed and for what could not be."""
        manage = apply_sysctls if self._config.process.manage_sysctls else check_sysctls
        for result in manage(required):
            if result.problem is not None:
                logger.warning("problem: %s", result.problem)
            elif result.outcome is SysctlOutcome.WRITTEN:
                wanted = result.sysctl
                logger.info("sysctl %s: %s -> %d, so that %s", wanted.name, result.found, wanted.value, wanted.why)


def _look_after(
    tasks: asyncio.TaskGroup, tables: Iterable[TableDriver], interface: ServiceInterface | None, changes: ChangeQueue
) -> None:
    """Start what the dataplane does beside the passes."""
    for table in tables:
        tasks.create_task(table.run_purge(), name=f"affinity {table.family.value}")
    if interface is not None:
        watch = InterfaceWatch(interface, changes.interface_changed)
        tasks.create_task(watch.run(), name="interface watch")


def choose_ownership(netlink: Ruleset, wanted: TableOwnership) -> Ownership:
    """What the configuration asks for; `auto` is owned where the kernel can. Raises NotPermitted."""
    if wanted is TableOwnership.PLAIN:
        netlink.generation()  # a probe would change the ruleset's generation; a look tells whether we may
        return Ownership.PLAIN
    able = probe_ownership(netlink)
    if wanted is TableOwnership.OWNED and able is not Ownership.OWNED:
        logger.warning("tableOwnership: this kernel has no persistent owned tables (Linux 6.9); using a plain one")
    return able


def choose_families(wanted: Literal["auto"] | tuple[Family, ...]) -> tuple[Family, ...]:
    """The configured families that the kernel has; IPv6 needs net.ipv6.conf.all.disable_ipv6 = 0.

    Raises Unsupported when it has none of them.
    """
    switch = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
    able = [Family.IPV4]
    if Path("/proc/net/if_inet6").exists() and switch.exists() and switch.read_text().strip() != "1":
        able.append(Family.IPV6)
    if wanted == "auto":
        return tuple(able)
    chosen = tuple(family for family in able if family in wanted)
    if not chosen:
        names = ", ".join(family.value for family in wanted)
        raise Unsupported(f"node.families: {names} is off on this machine (see net.ipv6.conf.all.disable_ipv6)")
    return chosen


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _raise_file_limit() -> None:
    """A thousand services with health check ports are two thousand sockets; the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.debug("open files stay limited: %s", error)


def _set_oom_score(score: int) -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(str(score))
    except OSError as error:
        logger.debug("oom_score_adj=%d: %s", score, error.strerror)
