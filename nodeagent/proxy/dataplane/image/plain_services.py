"""Recognises the services that are by far the most frequent, and makes their elements without a table for each of them (pure).

They are reached at ClusterIPs only, and each connection gets any of their endpoints. They get what `render_service` renders. An agent that
starts makes the elements of all services at one time, so nearly all that it renders is this.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from nodeagent.model.addresses import Family, pack_address
from nodeagent.model.frontend import Frontend, FrontendKind, ServiceState
from nodeagent.model.packed_backends import PackedBackends, local_addresses
from nodeagent.proxy.dataplane.image.blocks import cluster_ip_block
from nodeagent.proxy.dataplane.image.image import comment_text, frontend_key, packed_class
from nodeagent.proxy.dataplane.image.render import hairpin_keys
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import MAX_BACKENDS, PickClass


class PlainFrontend(NamedTuple):
    """An element of `frontends`, and the endpoints of its list."""

    key: bytes
    value: bytes
    backends: PackedBackends


class PlainService(NamedTuple):
    """Everything of a service in one family. keys: those of all elements, by set, in the order of rendering."""

    keys: Mapping[str, Collection[bytes]]
    frontends: list[PlainFrontend]


def plain_service(state: ServiceState, family: Family) -> PlainService | None:
    """Returns the elements of a service in one family; None if it has others than these, or none: then it must be rendered."""
    frontends: list[PlainFrontend] = []
    here: list[str] = []
    for frontend in state.frontends:
        if frontend.family is family:
            backends = frontend.route.backends
            if not isinstance(backends, PackedBackends) or not _is_plain(frontend):
                return None
            count = len(backends)
            if count >= MAX_BACKENDS or frontend.address is None:
                return None
            key = frontend_key(frontend.address, frontend.protocol, frontend.port)
            frontends.append(PlainFrontend(key, plain_class(count) + comment_text(frontend.service_port), backends))
            if backends.local:
                here += local_addresses(backends)
    if not frontends:
        return None
    keys: dict[str, Collection[bytes]] = {}
    if own := [pack_address(one) for one in state.cluster_ips if (":" in one) == (family is Family.IPV6)]:
        keys = {schema.CLUSTER_IPS: own, schema.CLUSTER_IP_BLOCKS: dict.fromkeys(map(cluster_ip_block, own))}
    keys[schema.FRONTENDS] = [frontend.key for frontend in frontends]
    if here:
        keys[schema.HAIRPIN] = hairpin_keys(here)
    return PlainService(keys, frontends)


def _is_plain(frontend: Frontend) -> bool:
    return (
        frontend.kind is FrontendKind.CLUSTER_IP
        and frontend.short_circuit is None
        and frontend.affinity_seconds is None
        and frontend.allowed_sources is None
    )


@lru_cache(maxsize=1024)  # each service asks for one of few
def plain_class(count: int) -> bytes:
    """Returns the class of a frontend with this many endpoints, of which each connection gets any."""
    return packed_class(PickClass(count).number)
