"""THE policy: which endpoints of a service port may get a connection, and what happens if none may.

Readiness, the terminating fallback, topology hints, internal and external traffic policy: docs/semantics.md §4, §5, §7, §10.
"""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.model.frontend import Route, Scope, Unserved
from nodeagent.model.objects import ServiceSpec
from nodeagent.model.packed_backends import pack_backends
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.service_endpoints import Candidate, PlainCandidates


class Policies(Struct, frozen=True, gc=False):
    """The traffic policies of a Service that are in effect: True is ``Local``, False is ``Cluster``."""

    internal_local: bool
    external_local: bool


class Routes(Struct, frozen=True, gc=False):
    """The routes of one service port in one family.

    internal: for the cluster IP. external: for external IPs, load-balancer IPs and the node port.
    short_circuit: for pods and the node itself on external addresses; None if they use `external`.
    """

    internal: Route
    external: Route
    short_circuit: Route | None


def policies_of(spec: ServiceSpec) -> Policies:
    """Returns the traffic policies that are in effect.

    `externalTrafficPolicy` is honoured only on a Service that is meant to be reached from outside: a value left over
    on a plain ClusterIP service has no effect (docs/semantics.md 32).
    """
    reachable = spec.type in ("NodePort", "LoadBalancer") or bool(spec.external_ips)
    return Policies(
        internal_local=spec.internal_traffic_policy == "Local",
        external_local=reachable and spec.external_traffic_policy == "Local",
    )


def choose_routes(candidates: Sequence[Candidate], policies: Policies, context: Context) -> Routes:
    """Returns the routes of a service port with these endpoints.

    The cluster route is empty only if no endpoint anywhere is usable; then everything is refused. If only a Local route is empty, packets
    are dropped instead: other nodes serve the address, and a refusal would make clients and load balancers believe that no node does.
    """
    cluster = cluster_route(candidates, context)
    if not (policies.internal_local or policies.external_local):
        return Routes(cluster, cluster, None)
    local = local_route(candidates, Unserved.DROP if cluster.backends else Unserved.REFUSE)
    return Routes(
        internal=local if policies.internal_local else cluster,
        external=local if policies.external_local else cluster,
        short_circuit=cluster if policies.external_local else None,
    )


def cluster_route(candidates: Sequence[Candidate], context: Context) -> Route:
    """Returns the ready endpoints that pass topology; if no endpoint is ready, those that terminate and still serve. Never a mix."""
    if isinstance(candidates, PlainCandidates):
        return Route(candidates.backends)
    ready = [candidate for candidate in candidates if candidate.ready]
    chosen = narrow_by_topology(ready, context) if ready else draining(candidates)
    return Route(pack_backends([candidate.backend for candidate in chosen]))


def local_route(candidates: Sequence[Candidate], otherwise: Unserved) -> Route:
    """Like `cluster_route`, but with the endpoints of this node only; topology hints do not apply."""
    here = [candidate for candidate in candidates if candidate.backend.local]
    chosen = [candidate for candidate in here if candidate.ready] or draining(here)
    return Route(pack_backends([candidate.backend for candidate in chosen]), Scope.LOCAL, otherwise)


def draining(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the endpoints that are terminating and still serve: better than no endpoint (KEP-1669)."""
    return [candidate for candidate in candidates if candidate.terminating and candidate.serving]


def narrow_by_topology(ready: Sequence[Candidate], context: Context) -> Sequence[Candidate]:
    """Returns the ready endpoints that topology hints assign to this node, or to its zone; all if hints do not apply.

    A kind of hint counts only if every ready endpoint has it and one of them names this node or zone: incomplete hints must
    not concentrate traffic on the endpoints that happen to have them (KEP-2433, KEP-3015).
    """
    if all(candidate.nodes for candidate in ready):
        hinted = [candidate for candidate in ready if context.node_name in candidate.nodes]
        if hinted:
            return hinted
    if context.zone and all(candidate.zones for candidate in ready):
        hinted = [candidate for candidate in ready if context.zone in candidate.zones]
        if hinted:
            return hinted
    return ready
