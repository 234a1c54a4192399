"""What a deletion asks for the dependents of its object, noted as finalizers that a garbage collector acts on. Pure.

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
    """Puts the finalizers of `finalizers_under` in an object that is about to be deleted."""
    meta = document["metadata"]
    found = meta.get("finalizers") or []
    following = finalizers_under(policy, found)
    if following:
        meta["finalizers"] = following
    elif found:
        del meta["finalizers"]


def finalizers_under(policy: str, found: Sequence[str]) -> list[str]:
    """The finalizers of an object that is deleted with a policy.

    policy: the empty string where the deletion names none; then a finalizer that the object has already decides.
    """
    held_for = tuple(_FINALIZERS.values())
    wanted = _FINALIZERS.get(policy) if policy else next((name for name in found if name in held_for), None)
    kept = [name for name in found if name not in held_for]
    following = [*kept, wanted] if wanted is not None else kept
    return list(found) if set(following) == set(found) else following
