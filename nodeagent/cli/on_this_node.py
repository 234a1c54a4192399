"""Findings of `nodeagent check` and `nodeagent trace` on this node, for `nodeagent explain`."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial

from nodeagent.cli.check import port_shortage_facts
from nodeagent.cli.other_tables import read_others
from nodeagent.cli.read_retries import read_with_retries
from nodeagent.diagnosis.checks.answering_hosts import HostsAsked
from nodeagent.diagnosis.checks.duplicate_addresses import duplicate_findings
from nodeagent.diagnosis.checks.finding import Finding, Result
from nodeagent.diagnosis.checks.hook_order import order_findings
from nodeagent.diagnosis.checks.kernel_facts import read_facts
from nodeagent.diagnosis.checks.settings import setting_findings
from nodeagent.diagnosis.checks.source_port_room import port_findings
from nodeagent.diagnosis.explain.kernel import FollowedConnections, NodeFault, StoppedConnection
from nodeagent.diagnosis.trace import sampled_ways
from nodeagent.diagnosis.trace.journey import Node
from nodeagent.diagnosis.trace.kernel_routes import KernelRoutes
from nodeagent.diagnosis.trace.looking import read_node
from nodeagent.diagnosis.trace.own_table import OwnTable
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.routes import Leg, RouteOutcome
from nodeagent.diagnosis.trace.table_reading import TableReading
from nodeagent.model.addresses import Family, endpoint_text, family_of
from nodeagent.model.frontend import FrontendKind, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset

MOST_PLACES = 8
"""The number of a Service's addresses and ports to which connections are followed."""
MOST_PODS = 16
"""The number of endpoints on this node among which pods with a route are searched."""


def node_faults(families: Collection[Family], pod_cidrs: Collection[str], hosts: HostsAsked) -> tuple[NodeFault, ...]:
    """Returns faults of the node that concern every Service; waits for the answers of hosts. Raises DataplaneError, OSError."""
    with closing(Ruleset()) as ruleset:
        facts = read_facts(ruleset, tuple(pod_cidrs), programmed=frozenset(families))
    settings = (*setting_findings(facts), *order_findings(facts), *port_findings(tuple(port_shortage_facts())))
    found = (*settings, *duplicate_findings(hosts.answers(pod_cidrs)))
    return tuple(_fault(one) for one in found if one.reason and one.result is Result.FAILED)


def _fault(found: Finding) -> NodeFault:
    which = f"{found.family} connections" if found.family else "connections"
    what = f"{which} by way of this node fail" if found.total else f"some {which} by way of this node may fail"
    return NodeFault(what, f"{found.check}: {found.detail}", found.cure, found.family, found.total)


def follow_service(
    state: ServiceState, client: str, known: Mapping[Family, TableReading | None]
) -> FollowedConnections:
    """Follows connections to the ClusterIPs of a Service. client: a pod's address; empty: this node and one of its pods. known:
    tables that were read already, of this Service at least. Raises DataplaneError, OSError."""
    families = dict.fromkeys(one.family for one in state.frontends)
    wanted = [one for one in families if not client or family_of(client) is one]
    found = [
        read_with_retries(partial(_follow_in_family, state, family, client, known.get(family))) for family in wanted
    ]
    return _group_by_service(((state.key, way) for ways, _ in found for way in ways), found)


def follow_services(known: Mapping[Family, TableReading | None]) -> FollowedConnections:
    """Follows connections to some Services, from this node and one of its pods. known: the tables as they were read. Raises
    DataplaneError, OSError."""
    found = [read_with_retries(partial(_follow_some, family, table)) for family, table in known.items()]
    return _group_by_service((each for ways, _ in found for each in ways), found)


def _group_by_service(
    ways: Iterable[tuple[ObjectKey, StoppedConnection]], found: Iterable[tuple[object, tuple[str, ...]]]
) -> FollowedConnections:
    stopped: dict[ObjectKey, tuple[StoppedConnection, ...]] = {}
    for key, way in ways:
        stopped[key] = (*stopped.get(key, ()), way)
    return FollowedConnections(stopped, tuple(dict.fromkeys(note for _, notes in found for note in notes)))


def _follow_some(
    family: Family, known: TableReading | None
) -> tuple[list[tuple[ObjectKey, StoppedConnection]], tuple[str, ...]]:
    with closing(Ruleset()) as ruleset, KernelRoutes() as routes:
        node, notes = read_node(ruleset, family, read_others, routes.addresses_at_interfaces(), known)
        ways = sampled_ways.ways_to_services(node, routes)
    return [
        (_key(each.service), _stopped_connection(one.client, each, meant=not one.is_fault(each)))
        for one in ways
        for each in one.stopped
    ], _with_doubts(notes, ways)


def _with_doubts(notes: tuple[str, ...], ways: Iterable[sampled_ways.Ways]) -> tuple[str, ...]:
    """Returns the notes after what may stop connections that otherwise arrive, or only their long packets."""
    holes = (f"{one.hole}: {one.hole.cure}" for one in ways if one.hole is not None)
    return (*(one.unclear for one in ways if one.unclear), *holes, *notes)


def _key(service_port: str) -> ObjectKey:
    namespace, _, name = service_port.partition(":")[0].partition("/")
    return ObjectKey(namespace, name)


def _follow_in_family(
    state: ServiceState, family: Family, client: str, known: TableReading | None
) -> tuple[list[StoppedConnection], tuple[str, ...]]:
    with closing(Ruleset()) as ruleset, KernelRoutes() as routes:
        node, notes = read_node(ruleset, family, read_others, routes.addresses_at_interfaces(), known)
        own = node.own
        if own is None:
            return [], ()
        places = list(itertools.islice(_places(state, own), MOST_PLACES))
        if client:
            if not own.is_pod(client):
                return [], notes
            ways: tuple[sampled_ways.Ways, ...] = (sampled_ways.ways_from(client, places, node, routes),)
        else:
            ways = sampled_ways.ways_to_places(
                places, node, routes, list(itertools.islice(_pods(state, own, node, routes), sampled_ways.MOST_PODS))
            )
        if known is not None and known.partial and not client and any(_is_doubtful(one) for one in ways):
            node, _ = read_node(ruleset, family, read_others, node.at_interface)  # other Services are followed too
        stopped = [
            _describe_stopped(one.client, each, node, routes, named=bool(client))
            for one in ways
            for each in one.stopped
        ]
    return stopped, _with_doubts(notes, ways)


def _places(state: ServiceState, own: OwnTable) -> Iterator[sampled_ways.Place]:
    """Yields the ClusterIPs and ports for which the table picks endpoints."""
    for one in state.frontends:
        if one.kind is FrontendKind.CLUSTER_IP and one.family is own.family and one.address:
            question = Question(one.address, one.address, one.port, one.protocol)
            if own.picks(question):
                yield one.address, one.protocol, one.port


def _pods(state: ServiceState, own: OwnTable, node: Node, routes: KernelRoutes) -> Iterator[str]:
    """Yields some pods on this node, found among all endpoints; first those that are no endpoints of this Service."""
    mine = _local_backends(state)
    usable = (one for one in own.endpoints_here() if own.is_pod(one) and one not in node.local)
    for one in itertools.islice(sorted(usable, key=lambda address: address in mine), MOST_PODS):
        route = routes.route(Leg(one))
        if route.way is RouteOutcome.OUT and not route.gateway:
            yield one


def _is_doubtful(ways: sampled_ways.Ways) -> bool:
    return not all(one.certain for one in ways.stopped)


def _describe_stopped(
    client: str, one: sampled_ways.LostConnection, node: Node, routes: KernelRoutes, *, named: bool
) -> StoppedConnection:
    """Describes a stopped connection. named: the user named this client, so a rule against only this client counts too."""
    meant = False
    if not (one.certain or named) and node.own is not None:
        meant = not sampled_ways.ways_from(
            one.question.source, list(sampled_ways.sample_places(node.own)), node, routes
        ).is_fault(one)
    return _stopped_connection(client, one, meant=meant)


def _stopped_connection(client: str, one: sampled_ways.LostConnection, *, meant: bool) -> StoppedConnection:
    asked = one.question
    return StoppedConnection(
        client,
        f"{endpoint_text(asked.destination, asked.port)}/{asked.protocol.name}",
        one.reason.why,
        one.reason.cure or "nodeagent trace shows each step",
        "" if one.share == 1 else str(one.share),
        meant,
        client == sampled_ways.THIS_NODE,
    )


def _local_backends(state: ServiceState) -> dict[str, None]:
    routes = (route for one in state.frontends for route in (one.route, one.short_circuit) if route is not None)
    return {each.address: None for route in routes for each in route.backends if each.local}
