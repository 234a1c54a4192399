"""Deletions that ask for something for dependents, and what kube-apiserver 1.36.2 leaves of the object."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

CONFIGMAPS: Final = "/api/v1/namespaces/default/configmaps"


class Calls(Protocol):
    """A request to a server: (method, path, body), answered by status and document."""

    def __call__(self, method: str, path: str, body: dict[str, Any] | None = None, /) -> tuple[int, dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Deletion:
    """An object with `finalizers` is deleted with each of `asked`; `left` is what it has then, None: it is gone."""

    name: str
    finalizers: tuple[str, ...]
    asked: tuple[Mapping[str, Any], ...]
    left: tuple[str, ...] | None


ORPHAN: Final = {"propagationPolicy": "Orphan"}
FOREGROUND: Final = {"propagationPolicy": "Foreground"}
BACKGROUND: Final = {"propagationPolicy": "Background"}
CONTRARY: Final = "finalizer orphan and foregroundDeletion cannot be both set"
OWN: Final = "example.com/own"
DELETIONS: Final = (
    Deletion("nothing-asked", (), ({},), None),
    Deletion("background", (), (BACKGROUND,), None),
    Deletion("orphan", (), (ORPHAN,), ("orphan",)),
    Deletion("foreground", (), (FOREGROUND,), ("foregroundDeletion",)),
    Deletion("orphan-in-old-words", (), ({"orphanDependents": True},), ("orphan",)),
    Deletion("background-in-old-words", (), ({"orphanDependents": False},), None),
    Deletion("behind-what-is-there", (OWN,), (ORPHAN,), (OWN, "orphan")),
    Deletion("others-stay", (OWN,), (BACKGROUND,), (OWN,)),
    Deletion("the-object-says-orphan", ("orphan",), ({},), ("orphan",)),
    Deletion("the-object-says-foreground", ("foregroundDeletion", OWN), ({},), ("foregroundDeletion", OWN)),
    Deletion("the-deletion-says-otherwise", ("orphan",), (FOREGROUND,), ("foregroundDeletion",)),
    Deletion("the-deletion-says-at-once", ("orphan",), (BACKGROUND,), None),
    Deletion("again-the-same", (), (FOREGROUND, {}), ("foregroundDeletion",)),
    Deletion("again-otherwise", (), (FOREGROUND, ORPHAN), ("orphan",)),
    Deletion("again-at-once", (), (FOREGROUND, BACKGROUND), None),
    Deletion("only-tried", (), ({**ORPHAN, "dryRun": ["All"]},), ()),
)


def delete(call: Calls, one: Deletion, prefix: str = "") -> tuple[str, ...] | None:
    """What is left of the object's finalizers."""
    path = f"{CONFIGMAPS}/{prefix}{one.name}"
    metadata = {"name": f"{prefix}{one.name}", "finalizers": list(one.finalizers)}
    assert call("POST", CONFIGMAPS, {"metadata": metadata})[0] == 201
    for asked in one.asked:
        status, answer = call("DELETE", path, dict(asked))
        assert status == 200, answer
    status, found = call("GET", path)
    if status == 404:
        return None
    is_ending = "deletionTimestamp" in found["metadata"]
    assert is_ending is (found["metadata"].get("deletionGracePeriodSeconds") == 0)
    assert is_ending is not any("dryRun" in asked for asked in one.asked)
    return tuple(found["metadata"].get("finalizers", ()))
