"""Tracks the existing namespaces: only cluster DNS uses them, to distinguish a name without records from one that does not exist."""

import logging
from collections.abc import Callable, Collection, Iterable

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Namespace
from nodeagent.model.problem import Problem

logger = logging.getLogger(__name__)


class NamespaceNames:
    """The names of namespaces, kept up to date by an informer. changed: called after they changed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._listed = False
        self._names: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str] | None:
        """None until they have been listed or are found to be unavailable."""
        return self._names if self._listed else None

    def listing(self) -> "NamespaceList":
        return NamespaceList(self)

    def put(self, obj: Namespace) -> None:
        self.replace(self._names | {obj.metadata.name})

    def remove(self, key: ObjectKey) -> None:
        self.replace(self._names - {key.name})

    def unavailable(self) -> None:
        """Keeps the known names; namespaces of Services are known anyway."""
        self.replace(self._names)

    def report(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            logger.debug("namespaces: %s", problem)

    def replace(self, names: Collection[str]) -> None:
        """Replaces all known namespaces by `names`."""
        before = self.names
        self._names, self._listed = frozenset(names), True
        if before != self.names:
            self._changed()


class NamespaceList:
    """A full list being collected."""

    def __init__(self, target: NamespaceNames) -> None:
        self._target = target
        self._names: set[str] = set()

    def add(self, objects: Iterable[Namespace]) -> None:
        self._names.update(one.metadata.name for one in objects)

    def discard(self, key: ObjectKey) -> None:
        self._names.discard(key.name)

    def commit(self) -> None:
        self._target.replace(self._names)
