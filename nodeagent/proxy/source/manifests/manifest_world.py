"""Merges all manifest files: decides which version of a file counts, and which of two equal objects wins. Pure.

Rules, decided here and nowhere else:

1. A file that is read for the first time contributes every object that can be read. From then on it changes as a
   whole or not at all: while its newest version has a fault, the version before stays in effect.
2. Of two objects with the same kind, namespace and name, the first in sorted path order (within a file: in file order)
   is in effect, the other is a problem.
3. Endpoints are mirrored as the endpoint-slice-mirroring controller would, unless an EndpointSlice of the same
   service is in the files: then only the slices count (an export of a cluster holds both). Selectors are ignored:
   nothing here makes slices from pods.
4. Of the Nodes only this node's counts.
5. A reference without a target (a slice whose Service does not exist, a port name that nothing has) is a problem and changes
   nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    ApiObject,
    Endpoints,
    EndpointSlice,
    Node,
    Service,
    ServiceCIDR,
    StoredObject,
    key_of,
    service_of,
)
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.manifests.manifest_references import dangling_references
from nodeagent.proxy.source.manifests.manifests import Manifest, ManifestFault, ManifestObject
from nodeagent.proxy.source.mirror import mirror_endpoints, opts_out

Winners = dict[type, dict[ObjectKey, tuple[ManifestObject, str]]]
ObjectT = TypeVar("ObjectT", bound=ApiObject)


class ManifestFile(Struct, frozen=True):
    """A file: the version in effect, and the faults of a newer one that is not in effect."""

    name: str
    manifest: Manifest
    rejected: tuple[ManifestFault, ...] = ()


class World(Struct, frozen=True):
    """The objects in effect, by kind, the namespaces, and all problems. other_nodes: the names of Nodes that do not count."""

    services: Mapping[ObjectKey, Service] = {}
    slices: Mapping[ObjectKey, EndpointSlice] = {}
    nodes: Mapping[ObjectKey, Node] = {}
    service_cidrs: Mapping[ObjectKey, ServiceCIDR] = {}
    namespaces: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    other_nodes: tuple[str, ...] = ()


class WorldChanges(Struct, frozen=True):
    """The difference between two worlds. In order: endpoints come before the services that use them."""

    puts: tuple[StoredObject, ...]
    removals: tuple[tuple[type[StoredObject], ObjectKey], ...]


def next_version(name: str, before: ManifestFile | None, newest: Manifest) -> ManifestFile:
    """Returns the file after `newest` was read (rule 1). A file of which nothing is in effect has no previous version to keep."""
    if newest.faults and before is not None and before.manifest.objects:
        return ManifestFile(name, before.manifest, rejected=newest.faults)
    return ManifestFile(name, newest)


def merge(files: Iterable[ManifestFile], node_name: str) -> World:
    """Returns the world that the files describe (rules 2 to 4); their order does not matter."""
    winners: Winners = {}
    problems: list[Problem] = []
    namespaces: set[str] = set()
    for file in sorted(files, key=lambda file: file.name):
        namespaces |= file.manifest.namespaces
        problems += _problems_of(file)
        for found in file.manifest.objects:
            key = key_of(found.obj)
            winner, place = winners.setdefault(type(found.obj), {}).setdefault(key, (found, file.name))
            if winner is not found:
                problems.append(_duplicate(file.name, found, f"{place}:{winner.line}"))
    services = _of(Service, winners)
    every_node = _of(Node, winners)
    nodes = {key: node for key, node in every_node.items() if key.name == node_name}
    others = tuple(sorted(key.name for key in every_node if key.name != node_name))
    written, listed = _of(EndpointSlice, winners), _of(Endpoints, winners)
    problems += _dangling(services, written, listed, winners)
    slices = _with_mirrored(written, listed, services)
    return World(services, slices, nodes, _of(ServiceCIDR, winners), frozenset(namespaces), tuple(problems), others)


def changes_between(before: World, after: World) -> WorldChanges:
    """Returns the puts and removals that turn `before` into `after`."""
    tables: tuple[
        tuple[type[StoredObject], Mapping[ObjectKey, StoredObject], Mapping[ObjectKey, StoredObject]], ...
    ] = (
        (Node, before.nodes, after.nodes),
        (ServiceCIDR, before.service_cidrs, after.service_cidrs),
        (EndpointSlice, before.slices, after.slices),
        (Service, before.services, after.services),
    )
    puts = tuple(obj for _, old, new in tables for key, obj in new.items() if not _same(old.get(key), obj))
    removals = tuple((kind, key) for kind, old, new in reversed(tables) for key in old if key not in new)
    return WorldChanges(puts, removals)


def _same(old: StoredObject | None, new: StoredObject) -> bool:
    return old is new or old == new


def _of(kind: type[ObjectT], winners: Winners) -> dict[ObjectKey, ObjectT]:
    return {key: found.obj for key, (found, _) in winners.get(kind, {}).items() if isinstance(found.obj, kind)}


def _dangling(
    services: Mapping[ObjectKey, Service],
    slices: Mapping[ObjectKey, EndpointSlice],
    endpoints: Mapping[ObjectKey, Endpoints],
    winners: Winners,
) -> Iterator[Problem]:
    """Applies rule 5. Endpoints count if their Service has no slice, and only if they are mirrored at all."""
    written_for = {service_of(found) for found in slices.values()}
    used = [listed for key, listed in endpoints.items() if key not in written_for and not opts_out(listed)]
    for source, reason, detail in dangling_references(services, slices.values(), used):
        found, name = winners[type(source)][key_of(source)]
        yield Problem(_place(name, found.line), reason, f"{type(source).__name__} {key_of(source)}: {detail}")


def _with_mirrored(
    slices: dict[ObjectKey, EndpointSlice],
    endpoints: Mapping[ObjectKey, Endpoints],
    services: Mapping[ObjectKey, Service],
) -> dict[ObjectKey, EndpointSlice]:
    """Returns all slices: the written ones and, for services without any, those made from Endpoints (rule 3)."""
    written_for = {service_of(written) for written in slices.values()}
    mirrored = (
        made
        for key, listed in endpoints.items()
        if key not in written_for
        for made in mirror_endpoints(listed, services.get(key))
    )
    return {**slices, **{key_of(made): made for made in mirrored}}


def _duplicate(name: str, found: ManifestObject, winner: str) -> Problem:
    title = f"{type(found.obj).__name__} {key_of(found.obj)}"
    detail = f"{title} is also in {winner}, which is in effect; this one is not"
    return Problem(_place(name, found.line), "DuplicateObject", detail)


def _problems_of(file: ManifestFile) -> list[Problem]:
    consequence = "the previous version of the file stays in effect" if file.rejected else "this is not in effect"
    faults = [
        Problem(_place(file.name, fault.line), fault.reason, f"{fault.detail}; {consequence}")
        for fault in file.rejected or file.manifest.faults
    ]
    advice = [Problem(_place(file.name, found.line), found.reason, found.detail) for found in file.manifest.advice]
    return faults + advice


def _place(name: str, line: int) -> str:
    return f"file {name}:{line}" if line else f"file {name}"
