"""Where the elements in the kernel differ from those that are wanted, in words (pure)."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from nodeagent.diagnosis.simulator.spelling import spell_fields
from nodeagent.model.addresses import Family, unpack_address
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.text import printable
from nodeagent.proxy.dataplane.image.delta import diff_images, diff_keys
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import TableImage
from nodeagent.proxy.dataplane.program import schema

_OF_ALL = frozenset({schema.CLUSTER_IP_ONLY_BLOCKS})
"""What is in these depends on all Services and the node."""
_SPECS = {spec.name: spec for spec in schema.set_specs(counters=False)}


class Deviation(Struct, frozen=True, order=True):
    """One element that differs. wanted, found: its value; None if it is not wanted or does not exist. service: the Service
    it belongs or belonged to; empty if it belongs to the node, or if that is not known."""

    family: str
    set: str
    key: str
    wanted: str | None
    found: str | None
    service: str = ""

    def __str__(self) -> str:
        what = f"{self.set} {{ {self.key} }}"
        if self.found is None:
            return f"{what} is missing{_leads(self.wanted)}"
        if self.wanted is None:
            return f"{what} is too much{_leads(self.found)}"
        return f"{what} leads to {self.found} instead of {self.wanted}"


def _leads(value: str | None) -> str:
    return f" (to {value})" if value else ""


def wanted_image(
    states: Mapping[ObjectKey, ServiceState | None], node: NodeState, family: Family, found: TableImage
) -> tuple[TableImage, DesiredImage]:
    """Returns all elements of these services and of the node, and their owners. A list of endpoints keeps the slots that it
    has in the kernel, as after a restart of the agent."""
    desired = DesiredImage(family)
    desired.update(states, found)
    desired.set_node(node)
    return desired.image, desired


def deviations(
    states: Mapping[ObjectKey, ServiceState | None], node: NodeState, family: Family, found: TableImage
) -> list[Deviation]:
    """Returns every element that differs, sorted. found: what the kernel has."""
    wanted, desired = wanted_image(states, node, family, found)
    delta = diff_images(wanted, found)
    differing = []
    for name, keys in _touched(delta.puts, delta.deletes):
        for key in keys:
            owner = desired.owner_of(name, key) if len(states) == 1 or len(keys) < _OWNERS_SOUGHT else None
            differing.append(_deviation(family, name, key, wanted, found, "" if owner is None else str(owner)))
    return sorted(differing)


def is_as_wanted(
    states: Mapping[ObjectKey, ServiceState | None], node: NodeState, family: Family, found: TableImage
) -> bool:
    """Returns whether no element differs: then `deviations_of_service` of each service is empty."""
    return diff_images(wanted_image(states, node, family, found)[0], found).empty


_OWNERS_SOUGHT = 200
"""Each owner is searched among all services. If more elements of a set differ, owners are read from comments only."""


def deviations_of_service(key: ObjectKey, state: ServiceState, family: Family, found: TableImage) -> list[Deviation]:
    """Returns the elements of this service that are missing or different. Leaves out those that depend on other services."""
    desired = DesiredImage(family)
    desired.update({key: state}, found)
    wanted = desired.image
    keys = {name: elements.keys() for name, elements in wanted.items() if elements and name not in _OF_ALL}
    delta = diff_keys(keys, wanted, found)
    if not (delta.puts or delta.deletes):
        return []
    return [
        _deviation(family, name, each, wanted, found, str(key))
        for name, keys in _touched(delta.puts, delta.deletes)
        for each in keys
    ]


def _touched(
    puts: Mapping[str, Mapping[bytes, bytes]], deletes: Mapping[str, list[bytes]]
) -> Iterator[tuple[str, list[bytes]]]:
    for name in _SPECS:
        keys = {*puts.get(name, {}), *deletes.get(name, ())}
        if keys:
            yield name, sorted(keys)


def _deviation(family: Family, name: str, key: bytes, wanted: TableImage, found: TableImage, service: str) -> Deviation:
    spec = _SPECS[name]
    want, have = wanted[name].get(key), found.get(name, {}).get(key)
    return Deviation(
        family.value,
        name,
        _key_text(name, family, key),
        _value_text(name, family, want),
        _value_text(name, family, have),
        service or (_comment(name, family, have if want is None else want) if spec.commented else ""),
    )


def _key_text(name: str, family: Family, key: bytes) -> str:
    spec = _SPECS[name]
    if not spec.interval:
        return spell_fields(spec.key, family, key)
    first, last = key[: len(key) // 2], key[len(key) // 2 :]
    if len(spec.key) == 1:
        return f"{unpack_address(first)}-{unpack_address(last)}"
    address = family.address_length
    return f"{spell_fields(spec.key[:-1], family, first)} . {unpack_address(first[-address:])}-{unpack_address(last[-address:])}"


def _value_text(name: str, family: Family, value: bytes | None) -> str | None:
    """Returns the value as nft writes it; empty for an element of a set; None if there is no value."""
    if value is None:
        return None
    spec = _SPECS[name]
    return spell_fields(spec.data, family, value[: spec.data_length(family)]) if spec.is_map else ""


def _comment(name: str, family: Family, value: bytes | None) -> str:
    return printable((value or b"")[_SPECS[name].data_length(family) :].decode(errors="replace"))
