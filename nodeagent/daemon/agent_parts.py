"""Builders of the agent's parts: source, names, work beside the passes, metrics. Each takes only existing parts."""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from nodeagent import __version__
from nodeagent.config.agent_config import AgentConfig
from nodeagent.daemon import part_options
from nodeagent.model.addresses import Family
from nodeagent.model.reports import KernelCounts, MapFill, NodeReport
from nodeagent.names.feed.cluster_dns import NodeNames
from nodeagent.names.feed.feed_messages import Settings
from nodeagent.names.upstream.node_resolvers import current_resolvers
from nodeagent.proxy.dataplane.conntrack_cleaner import ConntrackCleaner
from nodeagent.proxy.dataplane.nearby_addresses import NearbyAddresses
from nodeagent.proxy.dataplane.node_sysctls import NodeSysctls
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.observe.admin.journal import Journal
from nodeagent.proxy.observe.dataplane_listeners import DataplaneListeners
from nodeagent.proxy.observe.dataplane_log import DataplaneLog
from nodeagent.proxy.observe.health_answers import HealthAnswers
from nodeagent.proxy.observe.health_monitor import HealthMonitor
from nodeagent.proxy.observe.metrics.agent_figures import Views
from nodeagent.proxy.observe.metrics.change_figures import ChangeFigures
from nodeagent.proxy.observe.metrics.client_figures import ClientFigures
from nodeagent.proxy.observe.metrics.kube_proxy_figures import ProxyViews
from nodeagent.proxy.observe.metrics.metrics import About, Metrics
from nodeagent.proxy.observe.problem_board import ProblemBoard
from nodeagent.proxy.observe.repeated_drift import RepeatedDrift
from nodeagent.proxy.observe.status_page.status_answers import Reasons
from nodeagent.proxy.source.api_address import api_servers_in_use
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.credential_watch import CredentialWatch
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_source import Source, source_of
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pod_addresses import PodAddresses
from nodeagent.proxy.source.saved.state_keeper import StateKeeper
from nodeagent.proxy.source.saved.state_restorer import StateRestorer


@dataclass(frozen=True, slots=True)
class DnsParts:
    """Cluster DNS and the cluster objects that only it needs. settings: None if this agent answers no names; pods: None
    if pods are not followed."""

    settings: Settings | None
    node_names: NodeNames
    namespaces: NamespaceNames
    pods: PodAddresses | None


def build_names(
    config: AgentConfig, families: tuple[Family, ...], store: ClusterStore, changes: ChangeQueue, board: ProblemBoard
) -> DnsParts:
    """Returns cluster DNS, with the namespaces and pods that a source will deliver to it."""
    settings = part_options.dns_settings(config, families)
    # These two and `names` refer to each other: they are called when objects arrive, after this function.
    namespaces = NamespaceNames(lambda: names.namespaces_changed())
    pods = None
    if (followed := part_options.followed_pods(config)) != "none":
        pods = PodAddresses(
            lambda addresses: names.pods_changed(addresses),
            board.reporter("pods"),
            node_name=None if followed == "all" else config.node.name,
        )
    names = NodeNames(
        settings,
        store,
        is_dirty=changes.is_dirty,
        namespaces=lambda: namespaces.names,
        pods=pods,
        clients=[str(cidr) for cidr in config.dns.clients],
        pod_ranges=lambda: part_options.pod_ranges(config, store.node),
        adopts=not config.dns.handover.seconds,
        report=board.reporter("dns"),
        changed=changes.node_changed,
    )
    return DnsParts(settings, names, namespaces, pods)


def build_source(config: AgentConfig, client: ApiClient | None, store: ClusterStore, names: DnsParts) -> Source:
    """Returns the source that feeds the store, and cluster DNS with what only that needs."""
    with_names = names.settings is not None
    return source_of(
        client,
        config.source.manifests,
        store,
        node_name=config.node.name,
        endpoints_api=config.source.endpoints_api.value,
        for_names=with_names,
        namespaces=names.namespaces if with_names else None,
        pods=names.pods,
    )


@dataclass(frozen=True, slots=True)
class SavedStateParts:
    """The writer of the saved state, and its reader for a start without an API server."""

    keeper: StateKeeper
    restorer: StateRestorer


def build_saved_state(
    config: AgentConfig,
    access: ClusterAccess | None,
    store: ClusterStore,
    source: Source,
    names: DnsParts,
    board: ProblemBoard,
) -> SavedStateParts | None:
    """Returns them; None if no state is saved. Raises KubeconfigError."""
    path = config.source.snapshot
    if path is None or access is None:
        return None
    origin = part_options.saved_state_origin(config, access)
    namespaces = None if names.settings is None else names.namespaces
    return SavedStateParts(
        StateKeeper(path, origin, store, namespaces, wall=_utc_now, report=board.reporter("saving state")),
        StateRestorer(
            path,
            origin,
            store,
            namespaces,
            longest=timedelta(seconds=config.source.snapshot_max_age.seconds),
            following=lambda: source.following,
            wall=_utc_now,
            report=board.reporter("restoring state"),
        ),
    )


def build_credential_watch(
    access: ClusterAccess | None, client: ApiClient | None, figures: ClientFigures, board: ProblemBoard
) -> CredentialWatch | None:
    """Returns the watch of what expires; None without an API server."""
    if access is None or client is None:
        return None
    return CredentialWatch(
        access,
        client.shown_certificates,
        now=_utc_now,
        report=board.reporter("credentials"),
        show=figures.credentials_seen,
    )


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class DataplaneParts:
    """The work beside the passes. listeners: everything that is notified of it; repeated: one of them."""

    listeners: DataplaneListeners
    repeated: RepeatedDrift
    cleaner: ConntrackCleaner
    sysctls: NodeSysctls
    nearby: NearbyAddresses


def build_dataplane(
    config: AgentConfig, access: ClusterAccess | None, store: ClusterStore, changes: ChangeQueue, metrics: Metrics
) -> DataplaneParts:
    """Returns connection tracking, sysctls, and the addresses around this node."""
    repeated = RepeatedDrift(time.monotonic)
    listeners = DataplaneListeners(DataplaneLog(), metrics.kube_proxy, metrics.agent, repeated)
    nearby = NearbyAddresses(
        changes.node_changed,
        excluding=config.dataplane.interface_name,
        others=partial(api_servers_in_use, part_options.named_hosts(config, access), store),
        ways=part_options.ways(access),
        names=part_options.dns_places(config),
        resolvers=current_resolvers,
    )
    manage = config.process.manage_sysctls
    sysctls = NodeSysctls(part_options.conntrack_options(config), manage=manage, found=listeners.drift_found)
    return DataplaneParts(listeners, repeated, ConntrackCleaner(listeners), sysctls, nearby)


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSources:
    """The sources of metrics. maps: how full the tables are; counts: their counters (blocking); node: the last report
    on the node.

    ready: returns None when ready, else why not. reasons: returns why Services do not work.
    """

    families: tuple[Family, ...]
    journal: Journal
    board: ProblemBoard
    queue: ChangeQueue
    store: ClusterStore
    source: Source
    names: NodeNames
    health: HealthMonitor
    health_answers: HealthAnswers
    changes: ChangeFigures
    requests: ClientFigures
    maps: Callable[[], Collection[MapFill]]
    counts: Callable[[], KernelCounts]
    node: Callable[[], NodeReport]
    ready: Callable[[], str | None]
    reasons: Reasons


def build_figures(config: AgentConfig, sources: FigureSources) -> Metrics:
    """Returns the metrics, and the pages that show them."""
    reporting, seen = config.reporting, sources
    return Metrics(
        seen.families,
        About(
            __version__,
            config.node.name,
            part_options.describe_source(config),
            part_options.configz(config),
            reporting.metrics_services,
            reporting.metrics_endpoints,
            part_options.metrics_host_names(config),
        ),
        changes=seen.changes,
        requests=seen.requests,
        views=Views(
            oldest_change=lambda: seen.health.oldest_change,
            pending=lambda: seen.queue.pending,
            problems=lambda: seen.board.problems,
            objects=lambda: seen.store.counts,
            following=lambda: seen.source.following,
            node=seen.node,
            maps=seen.maps,
        ),
        proxy_views=ProxyViews(slices_of=seen.store.slices_of, health_counts=lambda: seen.health_answers.counts),
        names=lambda: seen.names.counts,
        read_counts=seen.counts,
        ready=seen.ready,
        reasons=seen.reasons,
        clock=asyncio.get_running_loop().time,
        wall=time.time,
        journal=seen.journal,
    )
