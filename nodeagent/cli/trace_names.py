"""Resolves the names that `nodeagent trace` accepts instead of addresses: a pod or node, and a Service."""

from collections.abc import Sequence

from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.named_pods import NODE_KINDS, POD_KINDS
from nodeagent.cli.node_reading import look_at_node
from nodeagent.cli.node_view import Access, NodeView
from nodeagent.cli.service_argument import ServiceArgument, find_service, parse_service
from nodeagent.diagnosis.trace.question import ARROWS
from nodeagent.model.addresses import endpoint_text, family_of, parse_address
from nodeagent.model.frontend import Frontend, FrontendKind
from nodeagent.model.names import ObjectKey

_TWO = 2


def resolve_names(words: Sequence[str], access: Access, namespace: str | None) -> tuple[str, ...]:
    """Replaces names in the arguments by addresses. Raises Failure if a name cannot be resolved."""
    parts = [part for word in words for part in word.replace("->", " -> ").split() if part not in ARROWS]
    if len(parts) != _TWO:
        return tuple(words)
    source, destination = parts
    named_source = source.partition("/")[0] in POD_KINDS | NODE_KINDS and "/" in source
    named_destination = not is_address(destination)
    if not named_source and not named_destination:
        return tuple(words)
    asked = parse_service(destination, namespace) if named_destination else None
    if not named_source and parse_address(source.strip("[]")) is None:
        raise Failure(f"{source!r} is not a source: pod/NAME, node/NAME or an address", UNUSABLE)
    view = look_at_node(access, None if asked is None else asked.key)
    sources = _source_addresses(source, access, view, namespace) if named_source else (source,)
    return _matching_pair(sources, (destination,) if asked is None else _service_addresses(view, asked))


def is_address(text: str) -> bool:
    """Returns whether the text begins with an address, so that it is not a name."""
    host = text.partition("/")[0].rpartition(":")[0]
    return parse_address(host.strip("[]")) is not None or parse_address(text.strip("[]")) is not None


def _matching_pair(sources: Sequence[str], places: Sequence[str]) -> tuple[str, ...]:
    """Returns the first source and destination of the same family. Raises Failure without such a pair."""
    for source in sources:
        for place in places:
            address, host = parse_address(source.strip("[]")), place.partition("/")[0].rpartition(":")[0]
            destination = parse_address(host.strip("[]"))
            if address is None or destination is None or family_of(address) is family_of(destination):
                return source, place
    raise Failure(f"{', '.join(sources)} and {', '.join(places)} have no family in common", UNUSABLE)


def _source_addresses(text: str, access: Access, view: NodeView, namespace: str | None) -> tuple[str, ...]:
    kind, _, name = text.partition("/")
    here = view.context.node_name
    if kind in NODE_KINDS:
        if name != here:
            raise Failure(f"this node is {here}: run nodeagent trace on {name}, or name node/{here}", UNUSABLE)
        return view.context.node_addresses
    from nodeagent.cli.pod_lookup import look_up_pod  # noqa: PLC0415 - loads a client of the API

    key = ObjectKey(namespace or "default", name)
    pod = look_up_pod(access, key)
    if pod.node != here:
        do = (
            f"is on node {pod.node}, and this is {here}: run nodeagent trace on {pod.node}"
            if pod.node
            else "is on no node yet"
        )
        raise Failure(f"pod {key} {do}", UNUSABLE)
    if not pod.addresses:
        raise Failure(f"pod {key} has no address yet: kubectl get pod {name} -n {key.namespace}", FAILED)
    return pod.addresses


def _service_addresses(view: NodeView, asked: ServiceArgument) -> tuple[str, ...]:
    """Returns the places `ADDRESS:PORT/PROTOCOL` of the Service: its ClusterIPs, or the named address or node port. Raises
    Failure."""
    key, port = (asked.key, asked.port) if asked.key is not None else find_service(view, asked)
    state = view.states.get(key)
    if state is None or not state.frontends:
        known = "has no address here" if key in view.services else "is not known here"
        raise Failure(f"Service {key} {known}: kubectl get service {key.name} -n {key.namespace}", FAILED)
    found = [
        one
        for one in state.frontends
        if _is_asked_for(one, asked) and port in ("", one.service_port.port, str(one.port))
    ]
    ports = sorted({(one.service_port.port, one.port) for one in found})
    names = ", ".join(name or str(number) for name, number in ports)
    if not found:
        has = ", ".join(sorted({one.service_port.port or str(one.port) for one in state.frontends}))
        raise Failure(f"Service {key} has no port {port or asked.node_port}; it has {has}", UNUSABLE)
    if len(ports) > 1:
        first = ports[0][0] or ports[0][1]
        raise Failure(f"Service {key} has ports {names}: name one, as in {key}:{first}", UNUSABLE)
    return tuple(
        f"{endpoint_text(address, one.port)}/{one.protocol.name.lower()}"
        for one in found
        for address in ([one.address] if one.address is not None else view.context.node_addresses)
        if family_of(address) is one.family
    )


def _is_asked_for(one: Frontend, asked: ServiceArgument) -> bool:
    if asked.node_port:
        return one.kind is FrontendKind.NODE_PORT and one.port == asked.node_port
    if asked.address:
        return one.address == asked.address
    return one.kind is FrontendKind.CLUSTER_IP
