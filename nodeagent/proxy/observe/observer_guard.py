"""Guards the agent against observers that raise, which they must not do."""

import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from nodeagent.model.names import ObjectKey

T = TypeVar("T")

NAMED = 5
"""This many of the objects on which an observer failed are named."""

logger = logging.getLogger(__name__)


class ObserverGuard:
    """Calls observers, and reports each failure once, with its traceback and the objects of the pass."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, type[Exception]]] = set()

    def call(self, observer: Callable[[T], None], news: T, about: Collection[ObjectKey]) -> None:
        """Passes `news`, which are about these objects, to an observer."""
        try:
            observer(news)
        except Exception as error:
            name = observer.__qualname__
            if (name, type(error)) not in self._logged:
                self._logged.add((name, type(error)))
                named = ", ".join(str(key) for key in sorted(about)[:NAMED]) or "no object"
                more = f" and {len(about) - NAMED} more" if len(about) > NAMED else ""
                logger.exception("%s failed to handle %s%s; reported once", name, named, more)
