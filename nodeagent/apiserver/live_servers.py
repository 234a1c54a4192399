"""The API servers that are live on a store: those of this program, and on an etcd also kube-apiservers.

Each server of this program keeps a record with its port and options. kube-apiserver keeps a master lease, an Endpoints object
under the server's address that expires (pkg/controlplane/reconcilers/lease.go), and writes the endpoints of the `kubernetes`
Service from these. On an etcd a server of this program keeps such a lease, too, so that both kinds of server count each other.
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
"""Stored under kube-apiserver's key and in its form."""
_USUAL_PORT: Final = 6443
_NODE_PORTS: Final = "nodePorts"
"""In a server's record: where it records allocated node ports. The previous version does not have this field."""


@dataclass(frozen=True, slots=True)
class AdvertisedAddress:
    """The address at which a server can be reached. A loopback address is useless to other machines and is not published."""

    address: str
    port: int

    @property
    def published(self) -> bool:
        """Whether other machines can use the address."""
        return not ip_address(self.address).is_loopback

    @property
    def path(self) -> str:
        """The path of the server's record: its address, as in kube-apiserver, and its port unless it is 6443."""
        return self.address if self.port == _USUAL_PORT else f"{self.address}:{self.port}"

    def lease(self, options: Mapping[str, str] = MappingProxyType({})) -> Document:
        """Returns the server's record. options: those that must be the same on all servers."""
        return {
            "metadata": {"name": self.path, "resourceVersion": "0"},
            "subsets": [{"addresses": [{"ip": self.address}], "ports": [endpoint_port(self.port)]}],
            "options": dict(options),
            _NODE_PORTS: "ranges",
        }

    def master_lease(self) -> bytes:
        """Returns the draft of the master lease of a kube-apiserver at this address."""
        return draft({"metadata": {"resourceVersion": "0"}, "subsets": [{"addresses": [{"ip": self.address}]}]})


def endpoint_port(number: int) -> Document:
    """Returns a port as in the Endpoints of the `kubernetes` Service."""
    return {"name": "https", "port": number, "protocol": "TCP"}


def own_servers(store: Store) -> set[AdvertisedAddress]:
    """Returns the live servers of this program."""
    return {
        AdvertisedAddress(address, int(one["port"]))
        for record in store.collection(SERVERS).records.values()
        for subset in record.document().get("subsets") or []
        for address in _addresses(subset)
        for one in subset.get("ports") or [{"port": _USUAL_PORT}]
    }


def has_predecessors(store: Store) -> bool:
    """Returns whether a server of the previous version is live, which records node ports elsewhere."""
    return any(_NODE_PORTS not in record.document() for record in store.collection(SERVERS).records.values())


def kube_apiservers(store: Store) -> set[str]:
    """Returns the addresses of live kube-apiservers on the same etcd."""
    if not store.remote:
        return set()
    leases = store.collection(MASTER_LEASES).records.values()
    found = {ip for lease in leases for subset in lease.document().get("subsets") or [] for ip in _addresses(subset)}
    return found - {server.address for server in own_servers(store)} if found else found


def _addresses(subset: Document) -> list[str]:
    return [str(address["ip"]) for address in subset.get("addresses") or []]
