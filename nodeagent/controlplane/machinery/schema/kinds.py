"""Every struct of every kind this server knows, by name."""

from collections.abc import Mapping
from functools import cache

from nodeagent.controlplane.machinery.schema import kinds_authentication, kinds_core, kinds_meta, kinds_service
from nodeagent.controlplane.machinery.schema.notation import read
from nodeagent.controlplane.machinery.schema.shapes import Struct


@cache
def structs() -> Mapping[str, Struct]:
    """All structs; `CoreEvent` is core/v1 Event, `Event` the one of events.k8s.io."""
    known: Mapping[str, Struct] = {}
    for text in (kinds_meta.KINDS, kinds_service.KINDS, kinds_core.KINDS, kinds_authentication.KINDS):
        known = read(text, known)
    return known
