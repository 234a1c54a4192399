"""Translates all services incrementally: translates the dirty ones, resolves conflicts, returns what changed."""

import traceback
from collections.abc import Collection, Iterable, Mapping
from operator import is_
from types import MappingProxyType

from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.model.problem import Problem
from nodeagent.model.snapshot import Snapshot
from nodeagent.proxy.translate.conflicts import Claims
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.dependence import Part, changed_parts, parts_read
from nodeagent.proxy.translate.services import translate_service, with_endpoints_of

_Inputs = tuple[Service, tuple[EndpointSlice, ...]]

_SERVICE = 10
"""The fixed cost of a service, in endpoints of one port."""


class Translator:
    """Holds the desired state of every Service on this node.

    Law: after any sequence of updates `states` equals that of a new Translator that saw only the last snapshot,
    provided every key that differs between two snapshots was dirty (or `dirty` was None).
    """

    def __init__(self) -> None:
        self._context: Context | None = None
        self._inputs: dict[ObjectKey, _Inputs] = {}
        self._wanted: dict[ObjectKey, ServiceState] = {}
        self._states: dict[ObjectKey, ServiceState] = {}
        self._claims = Claims()
        self._unresolved: set[ObjectKey] = set()
        self._sensitive: dict[Part, set[ObjectKey]] = {part: set() for part in Part if part is not Part.REST}
        self._outdated: set[ObjectKey] = set()

    @property
    def states(self) -> Mapping[ObjectKey, ServiceState]:
        """The state of every service that has a frontend, a ClusterIP or a problem, conflicts resolved. A live view."""
        return MappingProxyType(self._states)

    def outdated_by(self, context: Context) -> Collection[ObjectKey]:
        """Returns the services that depend on something that differs between this context and the last."""
        if context is self._context:
            return self._outdated
        parts = changed_parts(self._context, context)
        if Part.REST in parts:
            return self._inputs.keys()
        found = set(self._outdated)
        for part, keys in self._sensitive.items():
            if part in parts:
                found |= keys
        return found

    def update(
        self, snapshot: Snapshot, dirty: Collection[ObjectKey] | None, context: Context
    ) -> Mapping[ObjectKey, ServiceState | None]:
        """Translates the services that may have changed (None: any) and returns the states that did (None: the service is gone).

        A service whose objects are identical to the previous ones is not translated again, unless it depends on a part of the context
        that changed. If the snapshot raises, nothing is lost: the same update, or a later one with the same keys, completes it.
        """
        self._outdated.update(self.outdated_by(context))
        if self._context is None:
            self._outdated.update(snapshot.services)
        self._context = context
        keys: Iterable[ObjectKey] = (
            dict.fromkeys((*self._inputs, *snapshot.services)) if dirty is None else {*dirty, *self._outdated}
        )
        for key in keys:
            if self._translate(key, snapshot, context):
                self._unresolved.add(key)
                self._unresolved |= self._claims.update(key, self._wanted.get(key))
            self._outdated.discard(key)
        return self._resolve_conflicts()

    def _translate(self, key: ObjectKey, snapshot: Snapshot, context: Context) -> bool:
        """Updates the desired state of one service; returns whether it changed."""
        service = snapshot.services.get(key)
        before = self._wanted.get(key)
        if service is None:
            self._inputs.pop(key, None)
            self._wanted.pop(key, None)
            for sensitive in self._sensitive.values():
                sensitive.discard(key)
            return before is not None
        slices = tuple(snapshot.slices_of(key))
        known = self._inputs.get(key)
        is_valid = known is not None and known[0] is service and key not in self._outdated
        if is_valid and known is not None and _are_same(known[1], slices):
            return False
        try:
            amended = with_endpoints_of(before, service, slices, context) if is_valid and before is not None else None
            wanted = translate_service(service, slices, context) if amended is None else amended
        except Exception as error:  # noqa: BLE001 - no error of one service may stop the others
            wanted = _untranslatable(key, error)
        self._inputs[key] = (service, slices)
        parts = parts_read(service, slices)
        special = parts != Part.REST
        for part, sensitive in self._sensitive.items() if special or known is not None else ():
            (sensitive.add if special and part in parts else sensitive.discard)(key)
        if wanted == before:
            return False
        if wanted.cluster_ips or wanted.frontends or wanted.problems:
            self._wanted[key] = wanted
            return True
        self._wanted.pop(key, None)
        return before is not None

    def _resolve_conflicts(self) -> dict[ObjectKey, ServiceState | None]:
        """Resolves all conflicts that are not resolved yet, including those of an earlier update that failed half-way."""
        changed: dict[ObjectKey, ServiceState | None] = {}
        for key in self._unresolved:
            wanted = self._wanted.get(key)
            before = self._states.get(key)
            after = self._claims.resolve(wanted) if wanted is not None else None
            if after == before:
                continue
            changed[key] = after
            if after is None:
                del self._states[key]
            else:
                self._states[key] = after
        self._unresolved.clear()
        return changed


def _untranslatable(key: ObjectKey, error: Exception) -> ServiceState:
    """Returns a state with only the problem. The cause is a defect of this program, so the problem names its place in the source."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.name}, line {frame.lineno}"
    detail = f"internal error, the service is left out: {type(error).__name__}: {error} ({place})"
    return ServiceState(key, problems=(Problem(f"Service {key}", "TranslationFailed", detail),))


def _are_same(known: tuple[EndpointSlice, ...], slices: tuple[EndpointSlice, ...]) -> bool:
    return len(known) == len(slices) and all(map(is_, known, slices))


def translation_size(snapshot: Snapshot, keys: Iterable[ObjectKey]) -> int:
    """Returns the sum of the endpoints of every port, the frontends and the source ranges that services can have at most."""
    size = 0
    for key in keys:
        size += _SERVICE
        service = snapshot.services.get(key)
        if service is None:
            continue
        spec, status = service.spec, service.status
        ingress = status.load_balancer.ingress if status and status.load_balancer else None
        addresses = 2 + len(spec.external_ips or ()) + len(ingress or ())
        size += len(spec.ports or ()) * addresses + len(spec.load_balancer_source_ranges or ())
        for one in snapshot.slices_of(key):
            if one.endpoints is not None and one.ports is not None:
                size += len(one.endpoints) * len(one.ports)
    return size
