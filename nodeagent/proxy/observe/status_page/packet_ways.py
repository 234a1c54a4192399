"""The path of a packet through the table to one frontend, step by step (pure). docs/dataplane.md has the chains."""

from collections.abc import Mapping

from msgspec import Struct

from nodeagent.model.addresses import endpoint_text
from nodeagent.model.frontend import Frontend, FrontendKind, Route, Unserved

MOST_BACKENDS = 200
"""Of one frontend, which may have thousands."""


class Step(Struct, frozen=True):
    """One step of a packet's path. where: the chain, set or map. what: what happens there, in a few words."""

    where: str
    what: str


class FrontendPath(Struct, frozen=True):
    """One frontend. target: its address and port. connections: counted so far; None: not known. endpoints: some of `count`."""

    target: str
    kind: str
    family: str
    steps: tuple[Step, ...]
    endpoints: tuple[str, ...]
    count: int
    connections: int | None


def packet_path(frontend: Frontend, connections: int | None, picked: Mapping[str, int] = {}) -> FrontendPath:
    """Returns the path of a connection from elsewhere. picked: how often each endpoint of its service port was picked, if that
    is counted."""
    backends = frontend.route.backends
    address = "*" if frontend.address is None else frontend.address
    return FrontendPath(
        target=f"{endpoint_text(address, frontend.port)}/{frontend.protocol.name}",
        kind=frontend.kind.value,
        family=frontend.family.value,
        steps=tuple(_steps(frontend)),
        endpoints=tuple(
            place + (" (this node)" if one.local else "") + (f", {picked[place]} times" if place in picked else "")
            for one in backends[:MOST_BACKENDS]
            for place in (endpoint_text(one.address, one.port),)
        ),
        count=len(backends),
        connections=connections,
    )


def _steps(frontend: Frontend) -> list[Step]:
    node_port = frontend.kind is FrontendKind.NODE_PORT
    steps = [Step("prerouting, output", "the first packet of a connection, before routing")]
    if node_port:
        steps.append(Step("to-node", "is the destination an address of this node at which node ports answer?"))
    steps.append(Step("nodeports" if node_port else "frontends", "address, protocol and port lead to a class"))
    if frontend.allowed_sources is not None:
        steps.append(Step("guarded", f"dropped unless its source is in one of {len(frontend.allowed_sources)} ranges"))
    if frontend.short_circuit is not None:
        count = len(frontend.short_circuit.backends)
        steps.append(Step("by-source", f"pods and this node pick among all {count} endpoints; others go on below"))
    steps += _picking(frontend, frontend.route)
    if frontend.route.backends:
        steps.append(Step("postrouting", _source(frontend)))
    return steps


def _picking(frontend: Frontend, route: Route) -> list[Step]:
    count = len(route.backends)
    if not count:
        if route.otherwise is Unserved.REFUSE:
            return [Step("refuse", "no endpoints: a TCP reset, or ICMP port unreachable")]
        return [Step("discard", "no endpoint on this node, but on others: dropped silently")]
    chain = f"{'sticky' if frontend.affinity_seconds is not None else 'pick'}-{count}"
    steps = []
    if frontend.affinity_seconds is not None:
        text = f"the endpoint that this client had within {frontend.affinity_seconds} seconds; else as follows"
        steps.append(Step("affinity", text))
    steps.append(
        Step(chain, f"one of {count} at random, each with probability 1/{count}" if count > 1 else "the only one")
    )
    steps.append(Step("nodeport-backends" if frontend.address is None else "backends", "the slot's endpoint: dnat"))
    return steps


def _source(frontend: Frontend) -> str:
    if frontend.kind is FrontendKind.CLUSTER_IP:
        return "the source is rewritten for this node; for others as detectLocalMode and masqueradeAll say"
    return "the source is rewritten" if frontend.masquerade else "the source is kept, but for this node's own"
