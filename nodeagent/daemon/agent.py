"""The composition root: the only place that builds the parts and says what starts, in which order, and stops.

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

from nodeagent import __version__
from nodeagent.config import AgentConfig
from nodeagent.daemon.agent_view import AgentView
from nodeagent.daemon.part_options import (
    cluster_access,
    configz,
    conntrack_options,
    describe_source,
    dns_addresses,
    dns_places,
    dns_settings,
    followed_pods,
    group_number,
    metrics_host_names,
    named_hosts,
    pod_ranges,
    program_options,
    reached_by_own_service,
    translation_options,
    wanted_families,
    wanted_interface,
    wanted_ownership,
    ways,
)
from nodeagent.model.addresses import Family
from nodeagent.model.backoff import Backoff
from nodeagent.model.frontend import NamesHere
from nodeagent.model.problem import Problem
from nodeagent.names.feed.cluster_dns import NodeNames
from nodeagent.names.upstream.node_resolvers import resolvers_here
from nodeagent.proxy.dataplane.conntrack_cleaner import ConntrackCleaner
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.driver.kernel_counts import read_kernel_counts
from nodeagent.proxy.dataplane.driver.ownership import choose_ownership
from nodeagent.proxy.dataplane.driver.release import release_ways
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.families import choose_families
from nodeagent.proxy.dataplane.nearby_addresses import Surroundings
from nodeagent.proxy.dataplane.node_addresses import AddressesAlone, NodeAddresses
from nodeagent.proxy.dataplane.node_dataplane import NodeDataplane
from nodeagent.proxy.dataplane.node_sysctls import NodeSysctls
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.dataplane.ruleset_readers import netfilter_sockets
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.engine.sync import Engine, Timing
from nodeagent.proxy.observe.admin.admin_server import AdminServer
from nodeagent.proxy.observe.admin.journal import Journal
from nodeagent.proxy.observe.dataplane_listeners import DataplaneListeners
from nodeagent.proxy.observe.dataplane_log import DataplaneLog
from nodeagent.proxy.observe.health_monitor import HealthMonitor
from nodeagent.proxy.observe.metrics.agent_figures import Views
from nodeagent.proxy.observe.metrics.kube_proxy_figures import ProxyViews
from nodeagent.proxy.observe.metrics.metrics import About, Metrics
from nodeagent.proxy.observe.node_eligibility import NodeEligibility
from nodeagent.proxy.observe.pass_log import ProblemLog
from nodeagent.proxy.observe.problem_board import ProblemBoard
from nodeagent.proxy.observe.reporting import Reporting
from nodeagent.proxy.observe.waiting import StartWait
from nodeagent.proxy.source.api_address import ApiServerAddress
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.configured_ranges import WithConfiguredCidrs
from nodeagent.proxy.source.event_api import EventApi
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_source import source_of
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pod_addresses import PodAddresses
from nodeagent.runtime.systemd import SystemdNotifier

logger = logging.getLogger(__name__)

NODE_PATIENCE_SECONDS = 30.0
"""How long the first pass waits for the Node and the service CIDRs; the figure is kube-proxy's."""
GUARD_SECONDS = 0.5
PLAIN_GUARD_SECONDS = 0.1
"""Between looks whether somebody flushed our tables, which costs connections until the repair (a look is 21 µs)."""


class Agent:
    """One node's service proxy under one configuration. Make it and use it once, inside one event loop.

    netlink: the owner of owned tables; it outlives the agent, so that a successor takes the tables over.
    end_predecessor: ends the agent whose tables these are until then. It is awaited once all is known that is to be
    programmed, so that changes are followed all the time.

    Raises KubeconfigError, and Unsupported when this machine has none of the families. `serve` and `program_once` raise
    ManifestError when the source cannot be opened, NotPermitted and Unsupported when this kernel or process cannot do
    the work, SyncFailedError when programming keeps failing, and BindFailed when a server's address is taken and the
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
    ) -> None:
        loop = asyncio.get_running_loop()
        self._config, self._netlink, self._notifier = config, netlink, notifier
        self._end_predecessor = end_predecessor
        self._families = choose_families(wanted_families(config))
        self._tables: tuple[TableDriver, ...] = ()

        # The objects: a source feeds the store, and the store marks what changed in the queue.
        self._changes = ChangeQueue(loop.time)
        journal = Journal(lambda: datetime.now(UTC))
        self._board = ProblemBoard([ProblemLog(), journal])
        timeout_seconds = 2 * config.dataplane.sync_period.seconds
        health = self._health = HealthMonitor(
            self._changes, self._families, timeout_seconds=timeout_seconds, clock=loop.time
        )
        names = dns_settings(config, self._families)
        with_names = names is not None
        self._metrics = self._figures(loop.time, journal)
        self._store = ClusterStore(
            self._changes,
            for_names=with_names,
            on_problems=self._board.reporter("sources"),
            on_change=self._metrics.kube_proxy.object_changed,
        )
        namespaces = NamespaceNames(lambda: self._names.namespaces_changed())
        pods = None
        if (followed := followed_pods(config)) != "none":
            pods = PodAddresses(
                lambda addresses: self._names.pods_changed(addresses),
                self._board.reporter("pods"),
                node_name=None if followed == "all" else config.node.name,
            )
        self._names = NodeNames(
            names,
            self._store,
            is_dirty=self._changes.is_dirty,
            namespaces=lambda: namespaces.names,
            pods=pods,
            clients=[str(cidr) for cidr in config.dns.clients],
            pod_ranges=lambda: pod_ranges(config, self._store.node),
            adopts=not config.dns.handover.seconds,
            report=self._board.reporter("dns"),
            changed=self._changes.node_changed,
        )
        access = None if config.source.manifests is not None else cluster_access(config, environment)
        self._client = None if access is None else ApiClient(access, listener=self._metrics.agent)
        self._source = source_of(
            self._client,
            config.source.manifests,
            self._store,
            node_name=config.node.name,
            endpoints_api=config.source.endpoints_api.value,
            for_names=with_names,
            namespaces=namespaces if with_names else None,
            pods=pods,
        )
        say = notifier.status if end_predecessor is None else lambda _: None
        hint = reached_by_own_service(access, environment)
        self._wait = StartWait(describe_source(config), self._store, notifier, hint=hint, say=say)

        # What is done beside the passes.
        self._beside = DataplaneListeners(DataplaneLog(), self._metrics.kube_proxy, self._metrics.agent)
        self._cleaner = ConntrackCleaner(self._beside)
        self._sysctls = NodeSysctls(conntrack_options(config), manage=config.process.manage_sysctls)
        api_address = ApiServerAddress(named_hosts(config, access), self._store)
        interface_name = config.dataplane.interface_name
        self._surroundings = Surroundings(
            self._changes.node_changed,
            excluding=interface_name,
            others=api_address.in_use,
            ways=ways(access),
            names=dns_places(config),
            resolvers=resolvers_here,
        )

        # What others learn.
        self._view = AgentView(
            config,
            self._families,
            self._store,
            journal,
            awaited=lambda: str(self._wait),
            names=names,
            namespaces=lambda: namespaces.names or (),
            pods=pods,
            strays=self._store.strays,
        )
        self._reporting = Reporting(
            config.node.name,
            self._board,
            health,
            notifier,
            node_eligible=NodeEligibility(self._store, absence_counts=access is not None),
            ready=self._ready,
            healthz=config.reporting.healthz_bind_address,
            hard_fail=config.reporting.bind_address_hard_fail,
            listeners=(self._names, self._metrics.kube_proxy, self._metrics.agent, self._metrics.book, journal),
        )
        if (place := config.reporting.metrics_bind_address) is not None:
            hard_fail = config.reporting.bind_address_hard_fail
            self._reporting.serve_metrics((place.host, place.port), self._metrics.answers.answer, hard_fail=hard_fail)
        told = AddressesAlone(
            self._cleaner.node_addresses_changed,
            self._reporting.service_health.node_addresses_changed,
            self._names.node_addresses_changed,
            lambda _: self._surroundings.look_again(),
        )
        self._node_addresses = NodeAddresses(told, excluding=frozenset({interface_name}))

    @property
    def awaited(self) -> str:
        """What the agent waits for, and what is known of why, in one line."""
        return str(self._wait)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong now, sorted."""
        return self._board.problems

    async def serve(self) -> None:
        """Until cancelled; the rules stay in place."""
        if self._client is not None and self._config.reporting.events:
            self._reporting.publish_events(EventApi(self._client), self._store.uid_of)
        async with self._opened(), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._source.run(), name="source")
            tasks.create_task(self._surroundings.run(), name="surroundings")
            if self._end_predecessor is None:
                ownership = self._own_tables()
                self._report(tasks)
                await self._all_known()
            else:
                await self._all_known()
                await self._end_predecessor()
                self._end_predecessor = None  # it holds the predecessor, and with it all that one knew
                ownership = self._own_tables()
                self._report(tasks)
            self._sysctls.forward(self._families)
            await self._names.adopt()
            program = self._program()
            dataplane = self._dataplane(ownership, program)
            engine = self._engine(dataplane, ownership)
            self._view.working(engine, dataplane.tables, ownership.value, program)
            tasks.create_task(self._node_addresses.run(), name="node addresses")
            tasks.create_task(self._cleaner.run(), name="conntrack cleaner")
            tasks.create_task(dataplane.look_after(self._changes.interface_changed), name="dataplane")
            tasks.create_task(self._names.run(), name="cluster DNS")
            tasks.create_task(self._metrics.run(), name="event loop lag")
            tasks.create_task(dataplane.with_counts_settled(engine.run()), name="engine")

    async def leave(self) -> None:
        """Prepare for the end of this process and of those it started, while `serve` still runs: names are answered
        elsewhere from now on."""
        await self._names.give_back()

    def _report(self, tasks: asyncio.TaskGroup) -> None:
        """Answer others from now on: a predecessor has ended, and what it listened at is free."""
        tasks.create_task(self._reporting.run(), name="reporting")
        place = self._config.reporting.socket
        if place is not None:
            named = self._config.reporting.socket_group
            group = group_number(named)
            missing = named if group is None else None
            report = self._board.reporter("admin socket")
            admin = AdminServer(place, self._view, group=group, missing_group=missing, report=report)
            tasks.create_task(admin.run(), name="admin socket")

    async def program_once(self) -> None:
        """Until the present state is programmed in every family, and nothing is left of what it replaces."""
        async with self._opened(), asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(self._source.run(), name="source")
            ownership = self._own_tables()
            await self._all_known()
            self._sysctls.forward(self._families)
            dataplane = self._dataplane(ownership, self._program())
            engine = self._engine(dataplane, ownership)
            await dataplane.with_counts_settled(engine.first_pass(every_family=True))
            await dataplane.purge()
            await self._node_addresses.report()
            await self._cleaner.clean()
            feeding.cancel()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """While the way to the API server is open. What service ranges must keep clear of has been read once."""
        async with AsyncExitStack() as stack:
            stack.callback(self._reporting.flush)
            if self._client is not None:
                logger.info("API server: %s", self._client.server)
                await stack.enter_async_context(self._client)
            await self._surroundings.read()
            if self._end_predecessor is None:
                release_ways(self._netlink, self._surroundings.protected)
            yield

    def _own_tables(self) -> Ownership:
        """How the tables are owned; from here on they are ours alone."""
        config = self._config
        ownership = choose_ownership(self._netlink, wanted_ownership(config))
        families = ",".join(family.value for family in self._families)
        told = (config.node.name, families, ownership.value, describe_source(config))
        logger.info("starting node=%s families=%s table=%s source=%s", *told)
        return ownership

    async def _all_known(self) -> None:
        """Until all is known that is to be programmed."""
        if self._end_predecessor is None:
            self._notifier.status(f"waiting for services and endpoints from {describe_source(self._config)}")
        await self._wait.until(self._changes.wait_synced(NODE_PATIENCE_SECONDS))

    def _program(self) -> Mapping[Family, ProgramOptions]:
        """How the rules of each family are made: with those about names as long as a process answers any."""
        names = self._names.here != NamesHere()
        made = {family: program_options(self._config, family) for family in self._families}
        return {family: replace(options, names=options.names or names) for family, options in made.items()}

    def _dataplane(self, ownership: Ownership, program: Mapping[Family, ProgramOptions]) -> NodeDataplane:
        dataplane = NodeDataplane(
            self._netlink, ownership, program, self._beside, interface_name=wanted_interface(self._config)
        )
        self._tables = dataplane.tables
        return dataplane

    def _figures(self, clock: Callable[[], float], journal: Journal) -> Metrics:
        """What is counted. Nothing of this agent is looked up before the first scrape."""
        return Metrics(
            self._families,
            About(
                __version__,
                self._config.node.name,
                describe_source(self._config),
                configz(self._config),
                self._config.reporting.metrics_services,
                self._config.reporting.metrics_endpoints,
                metrics_host_names(self._config),
            ),
            Views(
                oldest_change=lambda: self._health.oldest_change,
                pending=lambda: self._changes.pending,
                problems=lambda: self._board.problems,
                objects=lambda: self._store.counts,
                following=lambda: self._source.following,
                maps=lambda: [fill for table in self._tables for fill in table.fills],
            ),
            ProxyViews(
                slices_of=lambda service: self._store.slices_of(service),
                is_dirty=self._changes.is_dirty,
                health_counts=lambda: self._reporting.health_counts,
            ),
            names=lambda: self._names.counts,
            read_counts=lambda: read_kernel_counts(self._tables),
            ready=self._why_not_ready,
            clock=clock,
            wall=time.time,
            journal=journal,
        )

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
            options=translation_options(config, self._families),
            tables=dataplane.tables,
            interface=dataplane.interface,
            flows=self._cleaner,
            observer=self._reporting.observers,
            heartbeat=self._notifier,
            in_use=lambda: self._surroundings.in_use,
            protected=lambda: self._surroundings.protected,
            own_addresses=dns_addresses(config, ranges, self._surroundings.in_use),
            names=lambda: self._names.here,
            sockets=netfilter_sockets,
            timing=Timing(
                guard_period_seconds=PLAIN_GUARD_SECONDS if ownership is Ownership.PLAIN else GUARD_SECONDS,
                min_period_seconds=config.dataplane.min_sync_period.seconds,
                resync_period_seconds=config.source.resync_period.seconds,
                full_sync_period_seconds=config.dataplane.full_sync_period.seconds,
                backoff=Backoff(longest_seconds=config.dataplane.sync_period.seconds),
            ),
        )

    def _ready(self, status: str) -> None:
        """The first pass has programmed a family."""
        self._surroundings.look_again()  # the API server's own Service is known now
        self._sysctls.tune_conntrack()
        self._notifier.ready(status)
        logger.info("ready: %s", status)
