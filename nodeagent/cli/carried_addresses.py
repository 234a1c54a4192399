"""The ClusterIPs that the service interface should carry, and those that it lacks."""

from collections.abc import Iterable

from nodeagent.cli.node_view import NodeView
from nodeagent.model.carried import carried_by, carried_ranges
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.dataplane.interface_deviation import address_deviations
from nodeagent.proxy.dataplane.interface_reading import read_interface


def wanted_addresses(view: NodeView, keys: Iterable[ObjectKey]) -> dict[str, str]:
    """Returns what the service interface should carry for these Services: {address: Service}, and {CIDR: ""} for a range,
    which belongs to many Services."""
    found: dict[str, str] = {}
    ranges = carried_ranges(view.node.service_cidrs)
    for key in keys:
        state = view.states.get(key)
        for cluster_ip in () if state is None else state.cluster_ips:
            for carried in carried_by(cluster_ip, ranges):
                found.setdefault(carried, str(key) if carried == cluster_ip else "")
    return found


def missing_addresses(view: NodeView, only: ObjectKey | None = None) -> frozenset[str]:
    """Returns the ClusterIPs of one Service, or of all, that the interface does not carry; empty if the node has no service
    interface. Raises OSError."""
    if view.interface is None:
        return frozenset()
    keys = list(view.states) if only is None else [only]
    found = read_interface(view.interface, view.context.node_addresses)
    deviating = address_deviations(wanted_addresses(view, keys), found)
    lacking = {one.address for one in deviating if one.found is None}
    if not lacking:
        return frozenset()
    ranges = carried_ranges(view.node.service_cidrs)
    states = [state for key in keys if (state := view.states.get(key)) is not None]
    return frozenset(
        one for state in states for one in state.cluster_ips if lacking.intersection(carried_by(one, ranges))
    )
