"""Gives LoadBalancer Services an address from a configured range (off without a range).

Nothing routes these addresses automatically: on one network segment the nodes that serve the Service answer for it, elsewhere
the operator's router must. A Service with a `loadBalancerClass` is left to another implementation.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address
from itertools import islice
from typing import Final

from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.storage.records import Event
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import STATUS, Catalog

_MOST: Final = 1 << 16


class LoadBalancerAddresses:
    """Reconciles one Service by path. `networks`: at most one for each IP family."""

    def __init__(
        self, store: Store, registry: Registry, catalog: Catalog, networks: tuple[IPv4Network | IPv6Network, ...]
    ) -> None:
        self._store = store
        self._registry = registry
        self._services = catalog.named("services")
        self._networks = networks
        self._held: dict[str, tuple[str, ...]] = {}

    def concerns(self, event: Event) -> Iterable[str]:
        """Returns the path of a Service that is, or was, a load balancer."""
        path = event.record.path
        return (path,) if path in self._held or b'"LoadBalancer"' in event.record.body else ()

    async def reconcile(self, path: str) -> float | None:
        """Sets status.loadBalancer.ingress, or frees the addresses of a Service that needs none."""
        record = self._store.get("services", path)
        service = record.document() if record is not None else None
        if service is None or service["spec"].get("type") != "LoadBalancer" or service["spec"].get("loadBalancerClass"):
            self._held.pop(path, None)
            return None
        present = tuple(
            entry["ip"] for entry in service["status"]["loadBalancer"].get("ingress") or [] if entry.get("ip")
        )
        wanted = self._addresses(path, service, present)
        self._held[path] = wanted
        if wanted != present:
            ingress = [{"ip": address, "ipMode": "VIP"} for address in wanted]
            service["status"] = {"loadBalancer": {"ingress": ingress} if ingress else {}}
            namespace, _, name = path.partition("/")
            options = WriteOptions(manager="nodeagent-load-balancer")
            await self._registry.update(self._services, namespace, name, service, options, STATUS)
        return None

    def _addresses(self, path: str, service: Document, present: tuple[str, ...]) -> tuple[str, ...]:
        taken = {address for holder, held in self._held.items() if holder != path for address in held}
        asked = service["spec"].get("loadBalancerIP", "")
        chosen = []
        for family in service["spec"].get("ipFamilies") or []:
            network = next((n for n in self._networks if f"IPv{n.version}" == family), None)
            if network is None:
                continue
            candidates = [*([asked] if asked else []), *present]
            kept = next((c for c in candidates if _inside(c, network) and c not in taken), None)
            address = kept or next((a for a in map(str, islice(network.hosts(), _MOST)) if a not in taken), None)
            if address is not None:
                chosen.append(address)
        return tuple(chosen)


def _inside(text: str, network: IPv4Network | IPv6Network) -> bool:
    try:
        return ip_address(text) in network
    except ValueError:
        return False
