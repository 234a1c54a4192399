"""Which API servers live on a store: those of this program, and on an etcd kube-apiservers beside them.

Each server of this program keeps a record of its own, with its port and options. kube-apiserver keeps a master lease, an
Endpoints object under the server's address that goes by itself (pkg/controlplane/reconcilers/lease.go), and writes the endpoints
of the `kubernetes` Service from these. On an etcd a server of this program keeps such a lease, too, so that each kind counts the
other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final

from nodeagent.apiserver.storage.records import draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document

SERVERS: Final = "apiservers"
MASTER_LEASES: Final = "masterleases"
"""Kept under kube-apiserver's key and in its form."""
_USUAL_PORT: Final = 6443
_NODE_PORTS: Final = "nodePorts"
"""In a server's record: where it records the node ports that are taken. The previous version does not say."""


@dataclass(frozen=True, slots=True)
class Advertised:
    """Where this server can be reached. A loopback address means nothing to others and is not published."""

    address: str
    port: int

    @property
    def published(self) -> bool:
        """Others can use it."""
        return not ip_address(self.address).is_loopback

    @property
    def path(self) -> str:
        """Under which it says that it lives: its address, as kube-apiserver has it, and its port where that is not the usual one."""
        return self.address if self.port == _USUAL_PORT else f"{self.address}:{self.port}"

    def lease(self, options: Mapping[str, str] = MappingProxyType({})) -> Document:
        """What it says then; options: those that all servers should have alike."""
        return {
            "metadata": {"name": self.path, "resourceVersion": "0"},
            "subsets": [{"addresses": [{"ip": self.address}], "ports": [endpoint_port(self.port)]}],
            "options": dict(options),
            _NODE_PORTS: "ranges",
        }

    def master_lease(self) -> bytes:
        """The draft of what a kube-apiserver at this address would say."""
        return draft({"metadata": {"resourceVersion": "0"}, "subsets": [{"addresses": [{"ip": self.address}]}]})


def endpoint_port(number: int) -> Document:
    """As endpoints of the `kubernetes` Service name it."""
    return {"name": "https", "port": number, "protocol": "TCP"}


def own_servers(store: Store) -> set[Advertised]:
    """The servers of this program that live."""
    return {
        Advertised(address, int(one["port"]))
        for record in store.collection(SERVERS).records.values()
        for subset in record.document().get("subsets") or []
        for address in _addresses(subset)
        for one in subset.get("ports") or [{"port": _USUAL_PORT}]
    }


def has_predecessors(store: Store) -> bool:
    """A server of the previous version lives, which records node ports elsewhere."""
    return any(_NODE_PORTS not in record.document() for record in store.collection(SERVERS).records.values())


def kube_apiservers(store: Store) -> set[str]:
    """The addresses of kube-apiservers that live on the same etcd."""
    if not store.remote:
        return set()
    leases = store.collection(MASTER_LEASES).records.values()
    found = {ip for lease in leases for subset in lease.document().get("subsets") or [] for ip in _addresses(subset)}
    return found - {server.address for server in own_servers(store)} if found else found


def _addresses(subset: Document) -> list[str]:
    return [str(address["ip"]) for address in subset.get("addresses") or []]
