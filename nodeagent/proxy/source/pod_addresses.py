"""Tracks which pods have which addresses: only cluster DNS uses them, for names of verified pods and for search paths."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from nodeagent.model.addresses import parse_address
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Pod, key_of
from nodeagent.model.problem import Problem

ENDED = frozenset({"Succeeded", "Failed"})
"""Phases in which a pod's address may belong to another pod already."""


class PodAddresses:
    """The namespaces of the running pods at each address, kept up to date by an informer.

    changed: called with the addresses whose pods changed. on_problems: called with the problems of following pods.
    node_name: only pods of this node count; None: all.
    """

    def __init__(
        self,
        changed: Callable[[Collection[str]], None],
        on_problems: Callable[[Iterable[Problem]], None],
        *,
        node_name: str | None = None,
    ) -> None:
        self._changed = changed
        self._on_problems = on_problems
        self.node_name = node_name
        self._pods: dict[ObjectKey, tuple[str, ...]] = {}
        self._namespaces: dict[str, Counter[str]] = {}
        self.listed = asyncio.Event()
        """Set once all pods are known, or are found to be unavailable."""

    @property
    def addresses(self) -> Collection[str]:
        """The addresses of all running pods."""
        return self._namespaces.keys()

    def namespaces_at(self, address: str) -> tuple[str, ...]:
        """Returns the namespaces of the running pods that have the address, sorted; several for an address of a node."""
        return tuple(sorted(self._namespaces.get(address, ())))

    def listing(self) -> "PodList":
        return PodList(self)

    def put(self, obj: Pod) -> None:
        self._update({key_of(obj): self.addresses_of(obj)})

    def remove(self, key: ObjectKey) -> None:
        self._update({key: ()})

    def unavailable(self) -> None:
        """Keeps the known pods."""
        self.listed.set()

    def report(self, problems: Iterable[Problem]) -> None:
        self._on_problems(problems)

    def replace(self, pods: Mapping[ObjectKey, tuple[str, ...]]) -> None:
        """Replaces all known pods by `pods`."""
        self._update({**dict.fromkeys(self._pods, ()), **pods})
        self.listed.set()

    def addresses_of(self, pod: Pod) -> tuple[str, ...]:
        """Returns the canonical addresses of a pod that runs and counts here; empty for other pods."""
        status = pod.status
        if status is None or status.phase in ENDED or self.node_name not in (None, pod.spec.node_name):
            return ()
        texts = [one.ip for one in status.pod_ips or ()] or [status.pod_ip or ""]
        return tuple(dict.fromkeys(filter(None, map(parse_address, texts))))

    def _update(self, pods: Mapping[ObjectKey, tuple[str, ...]]) -> None:
        touched: set[str] = set()
        for key, addresses in pods.items():
            before = self._pods.pop(key, ())
            if addresses:
                self._pods[key] = addresses
            if addresses == before:
                continue
            for address in before:
                self._count(address, key.namespace, -1)
            for address in addresses:
                self._count(address, key.namespace, 1)
            touched.update(before, addresses)
        if touched:
            self._changed(touched)

    def _count(self, address: str, namespace: str, number: int) -> None:
        counts = self._namespaces.setdefault(address, Counter())
        counts[namespace] += number
        if not counts[namespace]:
            del counts[namespace]
        if not counts:
            del self._namespaces[address]


class PodList:
    """A full list being collected."""

    def __init__(self, target: PodAddresses) -> None:
        self._target = target
        self._pods: dict[ObjectKey, tuple[str, ...]] = {}

    def add(self, objects: Iterable[Pod]) -> None:
        self._pods.update((key_of(one), addresses) for one in objects if (addresses := self._target.addresses_of(one)))

    def discard(self, key: ObjectKey) -> None:
        self._pods.pop(key, None)

    def commit(self) -> None:
        self._target.replace(self._pods)
