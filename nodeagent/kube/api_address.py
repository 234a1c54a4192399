"""Where the API server is, for those who must keep clear of it."""

from collections.abc import Mapping
from typing import Protocol

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Service

OWN_SERVICE = ObjectKey("default", "kubernetes")


class ServiceStore(Protocol):
    """The Services there are."""

    @property
    def services(self) -> Mapping[ObjectKey, Service]: ...


class ApiServerAddress:
    """host: the address or name by which the API server is reached; empty for one that is reached as a pod does, and
    where there is none."""

    def __init__(self, host: str, store: ServiceStore) -> None:
        self._host = host
        self._store = store

    def in_use(self) -> tuple[tuple[str, str], ...]:
        """The host and what has it, unless it is the ClusterIP of the API server's own Service."""
        kubernetes = self._store.services.get(OWN_SERVICE)
        own = kubernetes.spec.cluster_ips or () if kubernetes is not None else ()
        return ((self._host, "the API server"),) if self._host and self._host not in own else ()
