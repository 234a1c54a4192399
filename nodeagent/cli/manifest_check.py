"""A directory of manifests, checked as the agent reads it and as an API server would check it. Nothing is written."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service, key_of
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.manifests.manifest_directory import ManifestDirectory
from nodeagent.proxy.source.manifests.manifest_world import World
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator


def problems_in(root: Path, node_name: str) -> list[Problem]:
    """Everything that is wrong, in the order of files and lines. Raises OSError when the directory cannot be listed."""
    directory = ManifestDirectory(root, node_name, thorough=True)
    reading = directory.read()
    problems = [*reading.problems, *reading.world.problems]
    places: dict[str, str] = {}
    for file in directory.files:
        for found in file.manifest.objects:
            places.setdefault(f"{type(found.obj).__name__} {key_of(found.obj)}", f"file {file.name}:{found.line}")
    problems += (_placed(problem, places) for problem in _not_in_effect(reading.world, node_name))
    return sorted(dict.fromkeys(problems), key=_place)


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


def _place(problem: Problem) -> tuple[str, int, str]:
    path, _, line = problem.subject.rpartition(":")
    return (path, int(line), problem.detail) if line.isdigit() else (problem.subject, 0, problem.detail)
