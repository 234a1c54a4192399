"""The settings of one layer (a file, the environment, the flags), before they are checked and merged."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from nodeagent.config.config_problems import ConfigProblem, IgnoredField, Origin


@dataclass(frozen=True, slots=True)
class Setting:
    """A value for one option, as our own kind of file would have it.

    `key` is the option's name at `origin`; `elements` are the origins of a list's items if they are known.
    """

    value: object
    origin: Origin
    key: str
    elements: tuple[Origin, ...] = ()


@dataclass(slots=True)
class Layer:
    """Settings by option path (``traffic.masqueradeAll``), with errors, ignored fields and warnings."""

    settings: dict[str, Setting] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)
    ignored: list[IgnoredField] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def unknown_key(origin: Origin, path: str, known: Iterable[str]) -> ConfigProblem:
    """Returns the problem of an unknown key, with the most similar known one."""
    candidates = tuple(known)
    last = path.rpartition(".")[2]
    elsewhere = [candidate for candidate in candidates if candidate.rpartition(".")[2].lower() == last.lower()]
    meant = elsewhere or get_close_matches(path, candidates, n=1, cutoff=0.75)
    return ConfigProblem(origin, path, f"unknown key; did you mean {meant[0]}?" if meant else "unknown key")
