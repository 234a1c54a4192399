"""Checks a directory of manifests as the agent and as an API server would. Writes nothing."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, key_of, service_of
from nodeagent.model.problem import Problem
from nodeagent.model.snapshot import FixedSnapshot
from nodeagent.proxy.source.manifests.manifest_directory import ManifestDirectory
from nodeagent.proxy.source.manifests.manifest_world import World
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.translator import Translator


def problems_in(root: Path, node_name: str) -> list[Problem]:
    """Returns all problems, in the order of files and lines. Raises OSError if the directory cannot be listed."""
    directory = ManifestDirectory(root, node_name, thorough=True)
    reading = directory.read()
    problems = [*reading.problems, *reading.world.problems]
    places: dict[str, str] = {}
    for file in directory.files:
        for found in file.manifest.objects:
            places.setdefault(f"{type(found.obj).__name__} {key_of(found.obj)}", f"file {file.name}:{found.line}")
    problems += (_with_place(problem, places) for problem in _translation_problems(reading.world, node_name))
    return sorted(dict.fromkeys(problems), key=_sort_key)


def _translation_problems(world: World, node_name: str) -> Iterable[Problem]:
    """Returns the translator's problems: conflicts, addresses and ports that cannot be served."""
    slices: dict[ObjectKey, list[EndpointSlice]] = {}
    for found in world.slices.values():
        if (service := service_of(found)) is not None:
            slices.setdefault(service, []).append(found)
    states = Translator().update(FixedSnapshot(world.services, slices), None, Context(node_name=node_name))
    return [problem for state in states.values() if state is not None for problem in state.problems]


def _with_place(problem: Problem, places: Mapping[str, str]) -> Problem:
    place = places.get(problem.subject)
    return problem if place is None else Problem(place, problem.reason, f"{problem.subject}: {problem.detail}")


def _sort_key(problem: Problem) -> tuple[str, int, str]:
    path, _, line = problem.subject.rpartition(":")
    return (path, int(line), problem.detail) if line.isdigit() else (problem.subject, 0, problem.detail)
