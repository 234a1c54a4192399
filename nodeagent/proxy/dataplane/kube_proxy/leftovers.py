"""Looks at all places where kube-proxy leaves something, removes what they hold, and reports the result."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from nodeagent.proxy.dataplane.errors import DataplaneError


class LeftoverError(DataplaneError):
    """A place that could not be read or emptied; the text is one line that says what to do."""


def nothing_to_remove() -> None:
    """Removes nothing: for an empty finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a place holds: one line for each leftover, one for each thing to know before, and how to remove them.

    remove: raises DataplaneError or OSError; a new look then shows what it did.
    """

    leftovers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    remove: Callable[[], None] = nothing_to_remove


class CleanupTarget(Protocol):
    """A place in the kernel of this network namespace where kube-proxy leaves something."""

    @property
    def name(self) -> str:
        """The name of the place in messages."""
        ...

    def look(self) -> Finding:
        """Returns what the place holds; changes nothing. Raises DataplaneError, OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Failed:
    """A place that was not emptied, and why."""

    place: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.place}: {self.error}"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was removed (or would be), what to know, and what failed, in the order of the places."""

    leftovers: tuple[str, ...]
    notes: tuple[str, ...]
    failed: tuple[Failed, ...]


def sweep(places: Iterable[CleanupTarget], *, dry_run: bool) -> Sweep:
    """Looks at every place and, unless it is a dry run, empties it before looking at the next.

    A place that fails does not stop the others.
    """
    leftovers: list[str] = []
    notes: list[str] = []
    failed: list[Failed] = []
    for place in places:
        try:
            finding = place.look()
            notes += (f"{place.name} {note}" for note in finding.notes)
            if finding.leftovers and not dry_run:
                finding.remove()
            leftovers += (f"{place.name} {line}" for line in finding.leftovers)
        except (DataplaneError, OSError) as error:
            failed.append(Failed(place.name, error))
    return Sweep(tuple(leftovers), tuple(notes), tuple(failed))
