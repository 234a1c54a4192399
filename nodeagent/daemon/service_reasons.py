"""What `nodeagent explain` reports on Services, from the agent's knowledge: without kernel tables and probes (pure)."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from nodeagent.diagnosis.explain.service import explain_service
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.model.addresses_in_use import AddressesInUse, addresses_in_use
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice
from nodeagent.model.problem import Problem
from nodeagent.model.snapshot import Snapshot
from nodeagent.proxy.observe.status_page.status_answers import BrokenService
from nodeagent.proxy.translate.context import Context


def taken_ends(
    slices: Iterable[EndpointSlice], states: Mapping[ObjectKey, ServiceState], node_addresses: Collection[str]
) -> AddressesInUse:
    """Returns the endpoint addresses in these slices that are addresses of Services. A thread may change the states meanwhile."""
    ends = {address for one in slices for endpoint in one.endpoints or () for address in endpoint.addresses or ()}
    return addresses_in_use(tuple(states.values()) if ends else (), node_addresses, among=ends)


def facts_of(
    keys: Collection[ObjectKey],
    snapshot: Snapshot,
    context: Context,
    node: NodeState,
    states: Mapping[ObjectKey, ServiceState],
    problems: Sequence[Problem],
    *,
    strays: Sequence[ObjectKey],
    names_at: Collection[str],
) -> tuple[ServiceFacts, ...]:
    """Returns the facts about those of these Services that exist. strays: names of Services that only slices mention.
    names_at: addresses at which this node answers DNS itself."""
    services = {key: service for key in keys if (service := snapshot.services.get(key)) is not None}
    slices = {key: tuple(snapshot.slices_of(key)) for key in services}
    taken = taken_ends([one for those in slices.values() for one in those], states, context.node_addresses)
    return tuple(
        ServiceFacts(
            service=service,
            slices=slices[key],
            context=context,
            state=states.get(key),
            problems=problems,
            service_ranges=node.service_cidrs,
            taken=taken,
            pod_ranges=node.pod_cidrs,
            node_port_ranges=node.node_port_cidrs,
            astray=() if slices[key] else strays,
            names_at=tuple(names_at),
        )
        for key, service in services.items()
    )


def verdicts_of(facts: Iterable[ServiceFacts]) -> dict[str, BrokenService]:
    """Returns the verdict on each of these Services that is not healthy, by `namespace/name`."""
    judged = {str(one.key): explain_service(one) for one in facts}
    return {
        name: BrokenService(found.verdict, found.findings[0].because)
        for name, found in judged.items()
        if not found.healthy and found.findings
    }
