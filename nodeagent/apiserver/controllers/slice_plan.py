"""Plans how endpoints are distributed over EndpointSlices: at most 100 each, with as few writes as possible. Pure.

An endpoint stays in its slice, so one changed pod costs one slice; new endpoints fill the fullest slice that has room; a slice
that is no longer needed is reused for a new group before another is created (k8s.io/endpointslice reconciler).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from nodeagent.apiserver.controllers.backends import Port, Ports
from nodeagent.kinds.description.documents import Document

MOST_PER_SLICE: Final = 100

Group: TypeAlias = tuple[str, Ports]
"""(address type, ports): the endpoints of a group can share a slice."""


@dataclass(slots=True)
class SlicePlan:
    """The writes: contents by existing slice name, contents of new slices, names to delete."""

    update: dict[str, Document] = field(default_factory=dict)
    create: list[Document] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)


def plan_slices(
    existing: Sequence[Document], desired: Mapping[Group, Sequence[Document]], families: Iterable[str]
) -> SlicePlan:
    """Returns the writes that bring the slices of one Service to their desired state.

    existing: the controller's slices of the Service.
    desired: the endpoints of each group.
    families: each keeps one slice even without endpoints, so that consumers know that there are no endpoints.
    """
    plan = SlicePlan()
    spare: dict[str, list[Document]] = {}
    by_group: dict[Group, list[Document]] = {}
    for found in existing:
        group = group_of(found)
        if desired.get(group):
            by_group.setdefault(group, []).append(found)
        else:
            spare.setdefault(found["addressType"], []).append(found)
    fresh: dict[str, list[Document]] = {}
    for group, endpoints in sorted(desired.items()):
        if endpoints:
            fresh.setdefault(group[0], []).extend(_fill(plan, group, by_group.get(group, []), endpoints))
    for family in sorted({*families, *spare, *fresh}):
        wanted = fresh.get(family, [])
        in_use = any(group[0] == family for group in by_group)
        if not wanted and not in_use and family in families:
            wanted = [{"addressType": family, "endpoints": None, "ports": None}]
        _reuse_spare(plan, spare.get(family, []), wanted)
    return plan


def _reuse_spare(plan: SlicePlan, spare: list[Document], wanted: list[Document]) -> None:
    for contents in wanted:
        if not spare:
            plan.create.append(contents)
            continue
        reused = spare.pop(0)
        if any((reused.get(part) or None) != (contents[part] or None) for part in ("endpoints", "ports")):
            plan.update[reused["metadata"]["name"]] = contents
    plan.delete.extend(found["metadata"]["name"] for found in spare)


def _fill(plan: SlicePlan, group: Group, slices: Sequence[Document], endpoints: Sequence[Document]) -> list[Document]:
    """Plans updates of the group's slices; returns the contents of slices to add."""
    waiting = {_identity(endpoint): endpoint for endpoint in endpoints}
    contents: dict[str, list[Document]] = {}
    for found in slices:
        kept = []
        for endpoint in found.get("endpoints") or []:
            current = waiting.pop(_identity(endpoint), None)
            if current is not None:
                kept.append(current)
        contents[found["metadata"]["name"]] = kept
    added = [waiting[identity] for identity in sorted(waiting)]
    for kept in sorted(contents.values(), key=len, reverse=True):
        room = max(MOST_PER_SLICE - len(kept), 0)
        kept.extend(added[:room])
        del added[:room]
    family, ports = group
    for found in slices:
        name = found["metadata"]["name"]
        if not contents[name]:
            plan.delete.append(name)
        elif contents[name] != found.get("endpoints"):
            plan.update[name] = _contents(family, ports, contents[name])
    return [
        _contents(family, ports, added[start : start + MOST_PER_SLICE])
        for start in range(0, len(added), MOST_PER_SLICE)
    ]


def _contents(family: str, ports: Ports, endpoints: list[Document]) -> Document:
    return {"addressType": family, "endpoints": endpoints, "ports": [port.document() for port in ports] or None}


def _identity(endpoint: Document) -> tuple[str, str]:
    return (str((endpoint.get("targetRef") or {}).get("uid", "")), str(endpoint["addresses"][0]))


def group_of(found: Document) -> Group:
    """Returns the group of a slice."""
    ports = tuple(
        Port(
            port.get("name") or "", port.get("protocol") or "TCP", port.get("port") or 0, port.get("appProtocol") or ""
        )
        for port in found.get("ports") or []
    )
    return (found["addressType"], ports)
