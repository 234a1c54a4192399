"""A directory of manifests, checked as the agent reads it and as an API server would check it. Nothing is written."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodeagent.apiserver.object_check import ManifestCheck
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.manifests.manifest_directory import LARGEST_BYTES, ManifestDirectory, manifest_files
from nodeagent.proxy.source.manifests.manifest_fields import FIELDS, misfits
from nodeagent.proxy.source.manifests.manifest_world import World
from nodeagent.proxy.source.manifests.manifests import Located, located_objects
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator
from nodeagent.runtime.bounded_file import read_whole

DEFAULT_NAMESPACE = "default"


def problems_in(root: Path, node_name: str) -> list[Problem]:
    """Everything that is wrong, in the order of files and lines. Raises OSError when the directory cannot be listed."""
    reading = ManifestDirectory(root, node_name).read()
    problems = [*reading.problems, *reading.world.problems]
    check = ManifestCheck()
    places: dict[str, str] = {}
    for name, path in sorted(manifest_files(root).items()):
        for located in located_objects(_read(path)):
            place = f"file {name}:{located.line_of()}"
            places.setdefault(_title(located), place)
            problems += _refused(name, located, check)
    problems += (_placed(problem, places) for problem in _not_in_effect(reading.world, node_name))
    return sorted(dict.fromkeys(problems), key=_place)


def _read(path: Path) -> bytes:
    """The content; nothing when it cannot be read, which the agent's own reading has reported."""
    try:
        return read_whole(path, LARGEST_BYTES)
    except OSError:
        return b""


def _refused(name: str, located: Located, check: ManifestCheck) -> Iterator[Problem]:
    """What an API server would refuse and the agent's own reading did not name."""
    assert isinstance(located.value, dict), "an object that can be read is a mapping"
    known = {misfit.path for misfit in misfits(FIELDS[located.kind], located.value)}
    for complaint in check.complaints(located.version, located.kind, located.value):
        path = f"$.{complaint.path}" if complaint.path else "$"
        if path in known or path.rpartition("[")[0] in known:
            continue
        where = f"{complaint.path}: " if complaint.path else ""
        detail = f"{_title(located)}: {where}{complaint.text}"
        yield Problem(f"file {name}:{located.line_of(path)}", "RefusedByAPI", detail)


class _Snapshot:
    """The objects in effect, as the translation wants them."""

    node = None
    service_cidrs = ()

    def __init__(self, world: World) -> None:
        self.services: Mapping[ObjectKey, Service] = world.services
        self._slices: dict[ObjectKey, list[EndpointSlice]] = {}
        for found in world.slices.values():
            name = (found.metadata.labels or {}).get("kubernetes.io/service-name", "")
            self._slices.setdefault(ObjectKey(found.metadata.namespace, name), []).append(found)

    def slices_of(self, service: ObjectKey) -> list[EndpointSlice]:
        return self._slices.get(service, [])


def _not_in_effect(world: World, node_name: str) -> Iterable[Problem]:
    """What the translation would leave out: conflicts, addresses and ports that cannot be served."""
    states = Translator().update(_Snapshot(world), None, Context(node_name=node_name))
    return [problem for state in states.values() if state is not None for problem in state.problems]


def _placed(problem: Problem, places: Mapping[str, str]) -> Problem:
    place = places.get(problem.subject)
    return problem if place is None else Problem(place, problem.reason, f"{problem.subject}: {problem.detail}")


def _title(located: Located) -> str:
    """`Service default/web`."""
    value = located.value
    meta = value.get("metadata") if isinstance(value, dict) else None
    meta = meta if isinstance(meta, dict) else {}
    name = str(meta.get("name", ""))
    if located.kind in ("Node", "ServiceCIDR"):
        return f"{located.kind} {name}"
    return f"{located.kind} {meta.get('namespace') or DEFAULT_NAMESPACE}/{name}"


def _place(problem: Problem) -> tuple[str, int, str]:
    path, _, line = problem.subject.rpartition(":")
    return (path, int(line), problem.detail) if line.isdigit() else (problem.subject, 0, problem.detail)
