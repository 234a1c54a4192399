"""Explains Services of a view of the node, for `nodeagent explain` and bundles."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from nodeagent.cli.kernel_view import KernelView
from nodeagent.cli.node_view import NodeView
from nodeagent.diagnosis.explain.kernel import FollowedConnections, KernelService, NodeFault, Probe
from nodeagent.diagnosis.explain.plain_health import is_plainly_healthy
from nodeagent.diagnosis.explain.service import Explanation, explain_missing, explain_service
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.diagnosis.tables.deviation import is_as_wanted
from nodeagent.model.addresses_in_use import AddressesInUse, addresses_in_use
from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey


def document(one: Explanation, origin: str) -> dict[str, object]:
    """Returns the explanation with its origin as a document; the verdict is the first field."""
    fields: dict[str, object] = {name: getattr(one, name) for name in one.__struct_fields__}
    return {"verdict": fields.pop("verdict"), "healthy": fields.pop("healthy"), "origin": origin, **fields}


def explain_unhealthy(
    view: NodeView,
    kernel: Sequence[KernelView] | None,
    *,
    as_wanted: bool | None = None,
    client: str = "",
    probes: Mapping[ObjectKey, tuple[Probe, ...]] = MappingProxyType({}),
    missing: AbstractSet[str] = frozenset(),
    faults: Sequence[NodeFault] = (),
    followed: FollowedConnections | None = None,
) -> Iterator[Explanation]:
    """Yields an explanation of every Service of the view that is not healthy, sorted by name.

    as_wanted: whether the tables are known to have the wanted elements and no others; None: they are compared here. The other
    parameters are those of `explain`.
    """
    taken = addresses_in_use(view.states.values(), view.context.node_addresses)
    if as_wanted is None:
        as_wanted = all(is_as_wanted(view.states, view.node, table.family, table.image) for table in kernel or ())
    read = partial(_read, kernel, flows=False, missing=missing)
    for key in sorted(view.services):
        state = view.states.get(key)
        facts = _facts_of(
            view,
            key,
            kernel=read(key, state, listed=not as_wanted, compared=not as_wanted),
            client=client,
            taken=taken,
            faults=faults,
            followed=followed,
            probes=probes.get(key, ()),
        )
        if is_plainly_healthy(facts) or (explained := explain_service(facts)).healthy:
            continue
        yield replace(explained, kernel=read(key, state, compared=False)) if as_wanted else explained


def explain(
    view: NodeView,
    key: ObjectKey,
    kernel: Sequence[KernelView] | None,
    *,
    port: str = "",
    client: str = "",
    missing: AbstractSet[str] = frozenset(),
    followed: FollowedConnections | None = None,
    faults: Sequence[NodeFault] = (),
    probes: Sequence[Probe] = (),
) -> Explanation:
    """Explains one Service of the view.

    missing: ClusterIPs that the service interface lacks. followed, faults: effects of the node on connections. probes: results of
    connections to its endpoints.
    """
    if key in view.left_out:
        other, slices = view.left_out[key]
        return explain_service(ServiceFacts(service=other, slices=tuple(slices), context=view.context, state=None))
    if key not in view.services:
        return explain_missing(key, [*view.services, *view.others], view.problems, view.unwatched)
    return explain_service(
        _facts_of(
            view,
            key,
            kernel=_read(kernel, key, view.states.get(key), flows=True, missing=missing),
            port=port,
            client=client,
            taken=view.taken or addresses_in_use(view.states.values(), view.context.node_addresses),
            faults=faults,
            followed=followed,
            probes=probes,
        )
    )


def _facts_of(
    view: NodeView,
    key: ObjectKey,
    *,
    kernel: Sequence[KernelService] | None,
    client: str,
    taken: AddressesInUse,
    faults: Sequence[NodeFault],
    followed: FollowedConnections | None,
    probes: Sequence[Probe],
    port: str = "",
) -> ServiceFacts:
    """Returns what is known of a Service of the view. taken: addresses of all Services."""
    return ServiceFacts(
        service=view.services[key],
        slices=tuple(view.slices.get(key, ())),
        context=view.context,
        state=view.states.get(key),
        problems=view.problems,
        kernel=kernel,
        port=port,
        client=client,
        agent_runs=view.agent_runs,
        service_ranges=view.node.service_cidrs,
        taken=taken,
        pod_ranges=view.node.pod_cidrs,
        node_port_ranges=view.node.node_port_cidrs,
        astray=() if view.slices.get(key) else tuple(view.strays),
        stopped=() if followed is None else followed.stopped.get(key, ()),
        unseen=() if followed is None else followed.unseen,
        node_faults=faults,
        names_at=tuple(view.names_at),
        probes=probes,
    )


def _read(
    kernel: Sequence[KernelView] | None,
    key: ObjectKey,
    state: ServiceState | None,
    *,
    flows: bool,
    missing: AbstractSet[str],
    listed: bool = True,
    compared: bool = True,
) -> tuple[KernelService, ...] | None:
    """Returns what each table has for a Service (`KernelView.of_service`); None if the kernel was not read."""
    if kernel is None:
        return None
    return tuple(
        table.of_service(key, state, flows=flows, missing=missing, listed=listed, compared=compared) for table in kernel
    )
