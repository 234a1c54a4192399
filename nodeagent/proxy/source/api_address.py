"""Reports where the API server is, to parts that must not use its addresses."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Service

OWN_SERVICE = ObjectKey("default", "kubernetes")


class ServiceStore(Protocol):
    """The present Services."""

    @property
    def services(self) -> Mapping[ObjectKey, Service]: ...


class ApiServerAddress:
    """The addresses of the API server, which no Service may have. hosts: the addresses or names by which the API servers are
    reached; empty for a server that is reached as from a pod, and if no server is configured."""

    def __init__(self, hosts: Sequence[str], store: ServiceStore) -> None:
        self._hosts = hosts
        self._store = store

    def in_use(self) -> tuple[tuple[str, str], ...]:
        """Returns (host, holder) for each host, unless it is the ClusterIP of the API server's own Service."""
        kubernetes = self._store.services.get(OWN_SERVICE)
        own = kubernetes.spec.cluster_ips or () if kubernetes is not None else ()
        return tuple((host, "the API server") for host in self._hosts if host not in own)
