"""What differs for Services between two states of a node, in words."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from nodeagent.diagnosis.explain.places import place_of
from nodeagent.model.addresses import endpoint_text
from nodeagent.model.frontend import Frontend, Route, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.text import counted

_SHOWN = 5


class ServiceChange(Struct, frozen=True):
    """How a Service differs. change: `+` added, `-` removed, `~` changed. details: one line each."""

    change: str
    service: str
    details: tuple[str, ...]


def changes_between(
    before: Mapping[ObjectKey, ServiceState], after: Mapping[ObjectKey, ServiceState]
) -> tuple[ServiceChange, ...]:
    """Returns every Service whose addresses or endpoints differ, sorted by name."""
    found = []
    for key in sorted(before.keys() | after.keys()):
        old, new = _frontends(before.get(key)), _frontends(after.get(key))
        details = tuple(_details(old, new))
        if details:
            change = "+" if not old else "-" if not new else "~"
            found.append(ServiceChange(change, str(key), details))
    return tuple(found)


def _frontends(state: ServiceState | None) -> dict[str, Frontend]:
    return {} if state is None else {f"{one.family.value} {place_of(one)}": one for one in state.frontends}


def _details(old: Mapping[str, Frontend], new: Mapping[str, Frontend]) -> Iterator[str]:
    for place in sorted(old.keys() | new.keys()):
        was, will = old.get(place), new.get(place)
        if was is None or will is None:
            one = was or will
            assert one is not None, "a place is of one of them"
            yield f"{'+' if was is None else '-'} {one.kind.value} {place}: {counted(len(one.route.backends), 'endpoint')}"
        elif was != will:
            yield from (f"~ {was.kind.value} {place}: {text}" for text in _differences(was, will))


def _differences(was: Frontend, will: Frontend) -> Iterator[str]:
    for name, one, other in (("endpoints", was.route, will.route),):
        yield from _of_routes(name, one, other)
    if was.short_circuit != will.short_circuit:
        yield from _of_routes("endpoints for pods and this node", was.short_circuit, will.short_circuit)
    for name, before, after in (
        ("kind", was.kind.value, will.kind.value),
        ("port of the Service", was.service_port.port, will.service_port.port),
        ("policy", was.route.scope.value, will.route.scope.value),
        ("without endpoints", was.route.otherwise.value, will.route.otherwise.value),
        ("affinity", was.affinity_seconds, will.affinity_seconds),
        ("masquerade", was.masquerade, will.masquerade),
        ("allowed sources", was.allowed_sources, will.allowed_sources),
    ):
        if before != after:
            yield f"{name} {_word(before)} -> {_word(after)}"


def _of_routes(name: str, was: Route | None, will: Route | None) -> Iterator[str]:
    old = set() if was is None else {endpoint_text(one.address, one.port) for one in was.backends}
    new = set() if will is None else {endpoint_text(one.address, one.port) for one in will.backends}
    if old != new:
        yield f"{name} {' '.join([*_some('+', new - old), *_some('-', old - new)])}"


def _some(sign: str, endpoints: set[str]) -> list[str]:
    names = [f"{sign}{one}" for one in sorted(endpoints)]
    return names if len(names) <= _SHOWN else [*names[:_SHOWN], f"{sign}{len(names) - _SHOWN} more"]


def _word(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)
