"""Recognises the change that is by far the most frequent: a service of which only the endpoints differ (pure).

Its keys stay, and so do its lists of endpoints; only what is in these lists changes, and the numbers of endpoints. So it need not be
rendered again.
"""

from msgspec.structs import replace

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import Frontend, Route, ServiceState
from nodeagent.model.packed_backends import PackedBackends, local_backends
from nodeagent.proxy.dataplane.program.classes import MAX_BACKENDS


def with_new_routes(before: ServiceState, after: ServiceState, family: Family) -> list[Frontend] | None:
    """Returns the frontends of a family after a change of only their routes, in order.

    None if anything else differs in the elements, or if more depends on a route than one list and the class of its frontend: then the
    service must be rendered.
    """
    if before.cluster_ips != after.cluster_ips or len(before.frontends) != len(after.frontends):
        return None
    found: list[Frontend] = []
    for old, new in zip(before.frontends, after.frontends, strict=True):
        if old.family is not family and new.family is not family:
            continue
        if not _has_one_list(new) or replace(old, route=new.route) != new or not _same_kind(old.route, new.route):
            return None
        found.append(new)
    return found


def _has_one_list(frontend: Frontend) -> bool:
    """Returns whether only the elements `frontends` and `backends` depend on the routes."""
    return (
        frontend.address is not None
        and frontend.short_circuit is None
        and frontend.affinity_seconds is None
        and frontend.allowed_sources is None
    )


def _same_kind(old: Route, new: Route) -> bool:
    """Returns whether both routes have endpoints, no more than there are slots, and the same ones on this node."""
    before, after = old.backends, new.backends
    if not isinstance(before, PackedBackends) or not isinstance(after, PackedBackends):
        return False
    if (before.local or after.local) and local_backends(before) != local_backends(after):
        return False
    return len(after) <= MAX_BACKENDS
