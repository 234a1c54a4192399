"""Gives LoadBalancer services an address from a configured range (off unless there is one).

Nothing routes these addresses by itself: on one network segment the nodes that hold the service answer for it, elsewhere the
operator's router does. A class of its own (`loadBalancerClass`) means another implementation is in charge.
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
    """Reconciles one service by path. `networks`: at most one per IP family."""

    def __init__(
        self, store: Store, registry: Registry, catalog: Catalog, networks: tuple[IPv4Network | IPv6Network, ...]
    ) -> None:
        self._store = store
        self._registry = registry
        self._services = catalog.named("services")
        self._networks = networks
        self._held: dict[str, tuple[str, ...]] = {}

    def concerns(self, event: Event) -> Iterable[str]:
        """Services that are, or were, load balancers."""
        path = event.record.path
        return (path,) if path in self._held or b'"LoadBalancer"' in event.record.body else ()

    async def reconcile(self, path: str) -> float | None:
        """Sets status.loadBalancer.ingress, or forgets a service that needs none."""
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
