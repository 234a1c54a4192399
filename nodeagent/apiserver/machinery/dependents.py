"""The finalizers that tell a garbage collector what to do with the object's dependents. Pure.

The rules are those of deletionFinalizersForGarbageCollection in k8s.io/apiserver/pkg/registry/generic/registry/store.go.
"""

from collections.abc import Sequence
from typing import Final

from nodeagent.kinds.description.documents import Document

ORPHAN: Final = "Orphan"
FOREGROUND: Final = "Foreground"
BACKGROUND: Final = "Background"
POLICIES: Final = (BACKGROUND, FOREGROUND, ORPHAN)
_FINALIZERS: Final = {ORPHAN: "orphan", FOREGROUND: "foregroundDeletion"}


def hold(document: Document, policy: str) -> None:
    """Sets the finalizers of an object that is about to be deleted, by `finalizers_under`."""
    meta = document["metadata"]
    found = meta.get("finalizers") or []
    result = finalizers_under(policy, found)
    if result:
        meta["finalizers"] = result
    elif found:
        del meta["finalizers"]


def finalizers_under(policy: str, found: Sequence[str]) -> list[str]:
    """Returns the finalizers of an object deleted with `policy`. If that is empty, a finalizer that the object already has
    decides."""
    held_for = tuple(_FINALIZERS.values())
    wanted = _FINALIZERS.get(policy) if policy else next((name for name in found if name in held_for), None)
    kept = [name for name in found if name not in held_for]
    result = [*kept, wanted] if wanted is not None else kept
    return list(found) if set(result) == set(found) else result
