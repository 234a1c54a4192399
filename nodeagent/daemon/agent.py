"""The composition root: builds the parts with the builders of `agent_parts`, starts them in order, and stops them.

source ──▶ store ──▶ changes ──▶ engine ──▶ tables (ip, ip6), service interface
                                    └─────▶ observers: log, health servers, events, cluster DNS
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from nodeagent.config.agent_config import AgentConfig
from nodeagent.daemon import agent_parts, part_options
from nodeagent.daemon.agent_view import AgentView
from nodeagent.daemon.connection_follower import ConnectionFollower
from nodeagent.model.addresses import Family
from nodeagent.model.backoff import Backoff
from nodeagent.model.frontend import NamesHere
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.reports import KernelCounts, MapFill, NodeReport
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.proxy.dataplane.connection_watch import ConnectionWatch
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.driver.early_reading import EarlyReading, read_early
from nodeagent.proxy.dataplane.driver.flowtable_support import flowtable_problem
from nodeagent.proxy.dataplane.driver.kernel_counts import read_kernel_counts
from nodeagent.proxy.dataplane.driver.ownership import choose_ownership
from nodeagent.proxy.dataplane.driver.release import release_captures
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.endpoint_route_watch import EndpointRouteWatch
from nodeagent.proxy.dataplane.families import choose_families
from nodeagent.proxy.dataplane.node_addresses import AddressesOnly, NodeAddresses
from nodeagent.proxy.dataplane.node_conditions import NodeConditions
from nodeagent.proxy.dataplane.node_dataplane import NodeDataplane
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.dataplane.ruleset_readers import NetfilterSockets
from nodeagent.proxy.dataplane.worker_thread import in_thread
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.engine.sync import Engine, Timing
from nodeagent.proxy.observe.admin.admin_server import AdminServer
from nodeagent.proxy.observe.admin.journal import Journal
from nodeagent.proxy.observe.agent_conditions import AgentConditions
from nodeagent.proxy.observe.health_answers import HealthAnswers
from nodeagent.proxy.observe.health_monitor import HealthMonitor
from nodeagent.proxy.observe.metrics.change_figures import ChangeFigures
from nodeagent.proxy.observe.metrics.client_figures import ClientFigures
from nodeagent.proxy.observe.node_eligibility import NodeEligibility
from nodeagent.proxy.observe.pass_log import ProblemLog
from nodeagent.proxy.observe.problem_board import ProblemBoard
from nodeagent.proxy.observe.reporting import Reporting
from nodeagent.proxy.observe.waiting import StartWait
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.configured_ranges import WithConfiguredCidrs
from nodeagent.proxy.source.event_api import EventApi
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.unwatched_service import ask_api_server, read_manifests
from nodeagent.runtime.systemd import SystemdNotifier

logger = logging.getLogger(__name__)

NODE_PATIENCE_SECONDS = 30.0
"""How long the first pass waits for the Node and the service CIDRs, as in kube-proxy."""
GUARD_SECONDS = 0.5
PLAIN_GUARD_SECONDS = 0.1
"""Pause between checks for a flush of our tables, which costs connections until the repair (a check takes 21 µs)."""


class Agent:
    """One node's service proxy under one configuration. Use it once, inside one event loop.

    netlink: the owner of owned tables; it outlives the agent, so that a successor takes the tables over.
    end_predecessor: ends the agent that owns these tables so far. It is awaited when everything that will be programmed
    is known, so that changes are followed all the time.
    ready: called after the first pass that programmed a family.

    Raises KubeconfigError, and Unsupported if this machine has none of the families. `serve` and `program_once` raise
    ManifestError if the source cannot be opened, NotPermitted and Unsupported if this kernel or process cannot do the
    work, SyncFailedError if programming fails repeatedly, and BindFailed if a server's address is in use and the
    configuration does not let it wait.
    """

    def __init__(
        self,
        config: AgentConfig,
        environment: dict[str, str],
        *,
        netlink: Ruleset,
        notifier: SystemdNotifier,
        end_predecessor: Callable[[], Awaitable[None]] | None = None,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._config, self._netlink, self._notifier = config, netlink, notifier
        self._end_predecessor, self._when_ready = end_predecessor, ready
        self._families = choose_families(part_options.wanted_families(config))
        self._tables: tuple[TableDriver, ...] = ()

        self._changes = ChangeQueue(loop.time)
        self._board = ProblemBoard([ProblemLog(), journal := Journal(lambda: datetime.now(UTC))])
        self._health = HealthMonitor(
            self._changes, self._families, timeout_seconds=2 * config.dataplane.sync_period.seconds, clock=loop.time
        )
        change_figures = ChangeFigures(self._families, is_dirty=self._changes.is_dirty, wall=time.time)
        request_figures = ClientFigures()
        self._store = ClusterStore(
            self._changes,
            for_names=config.dns.enabled,
            on_change=change_figures.object_changed,
            on_problems=self._board.reporter("sources"),
        )
        names = agent_parts.build_names(config, self._families, self._store, self._changes, self._board)
        self._names = names.node_names
        access = None if config.source.manifests is not None else part_options.cluster_access(config, environment)
        self._client = None if access is None else ApiClient(access, listener=request_figures)
        self._credentials = agent_parts.build_credential_watch(access, self._client, request_figures, self._board)
        self._source = agent_parts.build_source(config, self._client, self._store, names)
        self._saved_state = agent_parts.build_saved_state(config, access, self._store, self._source, names, self._board)
        hint = part_options.reached_by_own_service(access, environment)
        say = notifier.status if end_predecessor is None else lambda _: None
        self._wait = StartWait(part_options.describe_source(config), self._store, notifier, hint=hint, say=say)

        eligible = NodeEligibility(self._store, absence_counts=access is not None)
        health_answers = HealthAnswers(
            self._health, clock=loop.time, wall=lambda: datetime.now(UTC), node_eligible=eligible
        )
        self._metrics = agent_parts.build_figures(
            config,
            agent_parts.FigureSources(
                families=self._families,
                journal=journal,
                board=self._board,
                queue=self._changes,
                store=self._store,
                source=self._source,
                names=self._names,
                health=self._health,
                health_answers=health_answers,
                changes=change_figures,
                requests=request_figures,
                maps=self._map_fills,
                counts=self._kernel_counts,
                node=self._node_report,
                ready=self._why_not_ready,
                reasons=lambda services: self._view.reasons(services),
            ),
        )
        self._beside = agent_parts.build_dataplane(config, access, self._store, self._changes, self._metrics)
        self._view = AgentView(
            config,
            self._families,
            self._store,
            journal,
            awaited=self._wait.__str__,
            names=names.settings,
            namespaces=lambda: names.namespaces.names or (),
            pods=names.pods,
            strays=self._store.strays,
            look_up=self._look_up,
        )
        follower = ConnectionFollower()
        self._connections = ConnectionWatch(self._view.states, follower.follow, self._board.reporter("connections"))
        self._readers = NetfilterSockets(lambda: follower.processes)
        self._conditions = NodeConditions(
            self._beside.sysctls,
            self._board.reporter("node"),
            endpoint_routes=EndpointRouteWatch(self._view.states),
            connections=self._connections,
            more=self._beside.repeated.problems,
        )
        self._reporting = self._build_reporting(health_answers, journal)
        self._node_addresses = self._build_node_addresses()

    def _build_reporting(self, health_answers: HealthAnswers, journal: Journal) -> Reporting:
        """Returns the part that reports to others."""
        options, metrics = self._config.reporting, self._metrics
        reporting = Reporting(
            self._config.node.name,
            self._board,
            self._health,
            health_answers,
            self._notifier,
            ready=self._on_ready,
            healthz=options.healthz_bind_address,
            hard_fail=options.bind_address_hard_fail,
            listeners=(self._names, journal),
            later=(metrics.kube_proxy, metrics.agent, metrics.book),
        )
        if (place := options.metrics_bind_address) is not None:
            hard_fail = options.bind_address_hard_fail
            reporting.serve_metrics((place.host, place.port), metrics.answers.answer, hard_fail=hard_fail)
        return reporting

    def _agent_conditions(self) -> AgentConditions:
        """Returns the watch of this process."""
        client = self._client
        return AgentConditions(
            self._board.reporter("agent"),
            late=self._metrics.agent.loop_was_late,
            ahead=lambda: None if client is None else client.clock.ahead_seconds,
        )

    def _build_node_addresses(self) -> NodeAddresses:
        """Returns the follower of the node's addresses, with all its listeners."""
        listeners = AddressesOnly(
            self._beside.cleaner.node_addresses_changed,
            self._reporting.service_health.node_addresses_changed,
            self._names.node_addresses_changed,
            lambda _: self._beside.nearby.look_again(),
        )
        return NodeAddresses(listeners, excluding=frozenset({self._config.dataplane.interface_name}))

    @property
    def awaited(self) -> str:
        """What the agent waits for, and why if that is known, in one line."""
        return str(self._wait)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All present problems, sorted."""
        return self._board.problems

    async def serve(self) -> None:
        """Serves until cancelled; the rules stay in place."""
        if self._client is not None and self._config.reporting.events:
            self._reporting.publish_events(EventApi(self._client), self._store.uid_of)
        async with self._opened(), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._source.run(), name="source")
            tasks.create_task(self._beside.nearby.run(), name="nearby addresses")
            if self._credentials is not None:
                tasks.create_task(self._credentials.run(), name="credential watch")
            if self._saved_state is not None:
                tasks.create_task(self._saved_state.keeper.run(), name="state keeper")
                if self._end_predecessor is None:  # the tables of a predecessor are newer than the saved file
                    tasks.create_task(self._saved_state.restorer.run(), name="state restorer")
            if self._end_predecessor is None:
                ownership = self._own_tables()
                self._start_reporting(tasks)
                early = await self._read_tables_until_synced()
            else:
                await self._wait_until_synced()
                early = {}
                await self._end_predecessor()
                self._end_predecessor = None  # it references the predecessor and all its objects
                ownership = self._own_tables()
                self._start_reporting(tasks)
            self._beside.sysctls.forward(self._families)
            await self._names.adopt()
            program = self._program()
            dataplane = self._dataplane(ownership, program, early)
            del early  # all elements, once more: the tables' drivers let go of it after the first pass
            engine = self._engine(dataplane, ownership)
            self._view.set_dataplane(engine, dataplane.tables, ownership.value, program)
            tasks.create_task(self._node_addresses.run(), name="node addresses")
            tasks.create_task(self._beside.cleaner.run(), name="conntrack cleaner")
            tasks.create_task(self._conditions.run(), name="conditions of the node")
            tasks.create_task(self._connections.run(), name="connections through the node")
            tasks.create_task(dataplane.look_after(self._changes.interface_changed), name="dataplane")
            tasks.create_task(self._names.run(), name="cluster DNS")
            tasks.create_task(self._agent_conditions().run(), name="conditions of the agent")
            tasks.create_task(dataplane.with_counts_settled(engine.run()), name="engine")

    async def leave(self) -> None:
        """Prepares for the end of this process and its children, while `serve` still runs: names are then answered
        elsewhere."""
        await self._names.give_back()

    def _start_reporting(self, tasks: asyncio.TaskGroup) -> None:
        """Starts the servers: a predecessor has ended, so its addresses are free."""
        tasks.create_task(self._reporting.run(), name="reporting")
        place = self._config.reporting.socket
        if place is not None:
            named = self._config.reporting.socket_group
            group = part_options.group_number(named)
            missing = named if group is None else None
            report = self._board.reporter("admin socket")
            admin = AdminServer(place, self._view, group=group, missing_group=missing, report=report)
            tasks.create_task(admin.run(), name="admin socket")

    async def program_once(self) -> None:
        """Programs the present state in every family, and removes what it replaces."""
        async with self._opened(), asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(self._source.run(), name="source")
            ownership = self._own_tables()
            early = await self._read_tables_until_synced()
            self._beside.sysctls.forward(self._families)
            dataplane = self._dataplane(ownership, self._program(), early)
            engine = self._engine(dataplane, ownership)
            await dataplane.with_counts_settled(engine.first_pass(every_family=True))
            await dataplane.purge()
            await dataplane.add_devices()
            self._conditions.look()
            await self._node_addresses.report()
            await self._beside.cleaner.clean()
            feeding.cancel()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Opens the API client and reads once which addresses service ranges must not contain."""
        async with AsyncExitStack() as stack:
            stack.callback(self._reporting.flush)
            stack.callback(self._readers.close)
            if self._client is not None:
                logger.info("API server: %s", self._client.server)
                await stack.enter_async_context(self._client)
            await self._beside.nearby.read()
            if self._end_predecessor is None:
                release_captures(self._netlink, self._beside.nearby.protected)
            yield

    def _own_tables(self) -> Ownership:
        """Returns how the tables are owned; from here on they belong to this agent only."""
        config = self._config
        ownership = choose_ownership(self._netlink, part_options.wanted_ownership(config))
        families = ",".join(family.value for family in self._families)
        values = (config.node.name, families, ownership.value, part_options.describe_source(config))
        logger.info("starting node=%s families=%s table=%s source=%s", *values)
        return ownership

    async def _wait_until_synced(self) -> None:
        """Waits until everything that will be programmed is known."""
        if self._end_predecessor is None:
            self._notifier.status(
                f"waiting for services and endpoints from {part_options.describe_source(self._config)}"
            )
        await self._wait.until(self._changes.wait_synced(NODE_PATIENCE_SECONDS))

    async def _read_tables_until_synced(self) -> Mapping[Family, EarlyReading]:
        """Does the same, and reads the tables meanwhile."""
        async with asyncio.TaskGroup() as tasks:
            options = {family: part_options.program_options(self._config, family) for family in self._families}
            work = partial(read_early, self._netlink, options)
            reading = tasks.create_task(in_thread(work), name="early reading of tables")
            await self._wait_until_synced()
        return reading.result()

    def _program(self) -> Mapping[Family, ProgramOptions]:
        """Returns the options of each family's rules: with rules about names as long as a process answers any."""
        names = self._names.here != NamesHere()
        made = {family: part_options.program_options(self._config, family) for family in self._families}
        made = {family: replace(options, names=options.names or names) for family, options in made.items()}
        return self._without_unsupported(made)

    def _without_unsupported(self, made: Mapping[Family, ProgramOptions]) -> Mapping[Family, ProgramOptions]:
        """Returns these options without flowtables where the kernel has none, which becomes a problem."""
        lacking = {
            family: problem
            for family, options in made.items()
            if options.flowtable and (problem := flowtable_problem(self._netlink, family)) is not None
        }
        self._board.replace("flowtable", lacking.values())
        return {
            family: replace(options, flowtable=options.flowtable and family not in lacking)
            for family, options in made.items()
        }

    def _dataplane(
        self, ownership: Ownership, program: Mapping[Family, ProgramOptions], early: Mapping[Family, EarlyReading]
    ) -> NodeDataplane:
        dataplane = NodeDataplane(
            self._netlink,
            ownership,
            program,
            self._beside.listeners,
            interface_name=part_options.wanted_interface(self._config),
            early=early,
            report_devices=self._board.reporter("devices of the flowtables"),
        )
        self._tables = dataplane.tables
        return dataplane

    def _map_fills(self) -> list[MapFill]:
        return [fill for table in self._tables for fill in table.fills]

    def _kernel_counts(self) -> KernelCounts:
        return read_kernel_counts(self._tables)

    def _node_report(self) -> NodeReport:
        return self._conditions.last

    async def _look_up(self, key: ObjectKey) -> UnwatchedService:
        if self._client is not None:
            return await ask_api_server(self._client, key)
        root = self._config.source.manifests
        assert root is not None, "there is one source or the other"
        return await asyncio.to_thread(read_manifests, root, self._config.node.name, key)

    def _why_not_ready(self) -> str | None:
        if not self._reporting.observers.ready:
            return str(self._wait) or "nothing is programmed yet"
        return None if self._health.is_healthy() else "programming is late"

    def _engine(self, dataplane: NodeDataplane, ownership: Ownership) -> Engine:
        config = self._config
        snapshot = WithConfiguredCidrs(self._store, config.traffic.service_cidrs)
        ranges = [cidr for found in snapshot.service_cidrs for cidr in found.spec.cidrs or ()]
        return Engine(
            snapshot=snapshot,
            changes=self._changes,
            options=part_options.translation_options(config, self._families),
            tables=dataplane.tables,
            interface=dataplane.interface,
            flows=self._beside.cleaner,
            observer=self._reporting.observers,
            heartbeat=self._notifier,
            in_use=lambda: self._beside.nearby.in_use,
            protected=lambda: self._beside.nearby.protected,
            own_addresses=part_options.dns_addresses(config, ranges, self._beside.nearby.in_use),
            names=lambda: self._names.here,
            sockets=self._readers.present,
            timing=Timing(
                guard_period_seconds=PLAIN_GUARD_SECONDS if ownership is Ownership.PLAIN else GUARD_SECONDS,
                min_period_seconds=config.dataplane.min_sync_period.seconds,
                resync_period_seconds=config.source.resync_period.seconds,
                full_sync_period_seconds=config.dataplane.full_sync_period.seconds,
                backoff=Backoff(longest_seconds=config.dataplane.sync_period.seconds),
            ),
        )

    def _on_ready(self, status: str) -> None:
        """Runs after the first pass has programmed a family."""
        self._beside.nearby.look_again()  # the API server's own Service is known now
        self._beside.sysctls.tune_conntrack()
        self._conditions.look()
        self._notifier.ready(status)
        self._when_ready()
        logger.info("ready: %s", status)
