"""Observers must not raise; one that does anyway must not end the agent."""

import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from nodeagent.model.names import ObjectKey

T = TypeVar("T")

NAMED = 5
"""Of the objects that somebody failed over, this many are named."""

logger = logging.getLogger(__name__)


class LastGuard:
    """Calls observers, and reports each failure once, with its traceback and the pass that it received."""

    def __init__(self) -> None:
        self._told: set[tuple[str, type[Exception]]] = set()

    def call(self, observer: Callable[[T], None], news: T, about: Collection[ObjectKey]) -> None:
        """Give `news`, which are about these objects, to an observer."""
        try:
            observer(news)
        except Exception as error:
            name = observer.__qualname__
            if (name, type(error)) not in self._told:
                self._told.add((name, type(error)))
                named = ", ".join(str(key) for key in sorted(about)[:NAMED]) or "no object"
                more = f" and {len(about) - NAMED} more" if len(about) > NAMED else ""
                logger.exception("%s failed over %s%s; said once", name, named, more)
