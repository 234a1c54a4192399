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


def api_servers_in_use(hosts: Sequence[str], store: ServiceStore) -> tuple[tuple[str, str], ...]:
    """Returns (host, holder) for each host, unless it is the ClusterIP of the API server's own Service. hosts: the addresses or
    names of the API servers; empty if they are reached as from a pod, or if no server is configured."""
    kubernetes = store.services.get(OWN_SERVICE)
    own = kubernetes.spec.cluster_ips or () if kubernetes is not None else ()
    return tuple((host, "the API server") for host in hosts if host not in own)
