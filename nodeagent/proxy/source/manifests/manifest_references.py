"""Checks the references between objects in manifests: slices name a Service, and ports are matched by their names.

To the API server none of this can be wrong, because it only ever sees one object at a time. In a directory that
holds all objects, a name that no object has is a mistake.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nodeagent.model import objects
from nodeagent.model.names import ObjectKey
from nodeagent.model.text import did_you_mean

PortId = tuple[str, str]
"""Name (empty for an unnamed port) and protocol: what a port of a Service and one of a slice have in common."""


class Dangling(NamedTuple):
    """A reference without a target: the object that has it, a CamelCase reason, one line for users."""

    source: objects.Service | objects.EndpointSlice | objects.Endpoints
    reason: str
    detail: str


class _Ports(NamedTuple):
    """The ports at which `source` has endpoints, and the Service they are for."""

    source: objects.EndpointSlice | objects.Endpoints
    service: ObjectKey
    ports: frozenset[PortId]


def dangling_references(
    services: Mapping[ObjectKey, objects.Service],
    slices: Iterable[objects.EndpointSlice],
    endpoints: Iterable[objects.Endpoints],
) -> Iterator[Dangling]:
    """Yields slices without a Service, slice ports that their Service does not have, and Service ports that none of its slices has."""
    sources: list[_Ports] = []
    for found in slices:
        service = objects.service_of(found)
        if service is None:
            detail = f"no label {objects.LABEL_SERVICE_NAME}: it belongs to no Service"
            yield Dangling(found, "NoServiceName", detail)
        else:
            sources.append(_Ports(found, service, _ids(found.ports if found.endpoints else None)))
    for listed in endpoints:
        ports = frozenset[PortId]().union(*(_ids(subset.ports) for subset in listed.subsets or ()))
        sources.append(_Ports(listed, objects.key_of(listed), ports))
    by_service: defaultdict[ObjectKey, list[_Ports]] = defaultdict(list)
    for source in sources:
        if source.service in services:
            by_service[source.service].append(source)
        else:
            near = [key.name for key in services if key.namespace == source.service.namespace]
            detail = f"there is no Service {source.service}{did_you_mean(source.service.name, near)}"
            yield Dangling(source.source, "UnknownService", detail)
    for key, of_service in by_service.items():
        yield from _unmet_ports(services[key], of_service)


def _unmet_ports(service: objects.Service, sources: Sequence[_Ports]) -> Iterator[Dangling]:
    """Yields a mistake where it probably is: at the slice, or at the Service if all ports of its slices match."""
    wanted = _ids(service.spec.ports)
    if not wanted or service.spec.type == "ExternalName" or all(source.ports == wanted for source in sources):
        return
    present: set[PortId] = set()
    unmet = False
    for source in sources:
        present |= source.ports
        for port in sorted(source.ports - wanted):
            unmet = True
            names = [name for name, _ in wanted if name and name != port[0]]
            detail = f"Service {objects.key_of(service)} has no port {_port_text(port)}{did_you_mean(port[0], names) or _existing_ports(wanted)}"
            yield Dangling(source.source, "UnknownPortName", detail)
    if present and not unmet:
        for port in sorted(wanted - present):
            detail = f"no endpoint of it has a port {_port_text(port)}{_existing_ports(present)}"
            yield Dangling(service, "UnknownPortName", detail)


def _ids(ports: Iterable[objects.ServicePort | objects.EndpointPort] | None) -> frozenset[PortId]:
    return frozenset([(port.name or "", port.protocol or "TCP") for port in ports or ()])


def _port_text(port: PortId) -> str:
    name, protocol = port
    return f"{name!r}/{protocol}" if name else f"without a name/{protocol}"


def _existing_ports(ports: Iterable[PortId]) -> str:
    return f"; there are {', '.join(_port_text(port) for port in sorted(ports))}"
