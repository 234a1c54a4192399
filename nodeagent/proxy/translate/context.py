"""The input of a service's translation besides the service itself."""

from msgspec import Struct

from nodeagent.model.addresses import Family
from nodeagent.proxy.translate.protection import Protection


class Context(Struct, frozen=True, kw_only=True):
    """This node as the translation sees it. When a part changes, the services that depend on that part are
    translated again (`dependence`).

    node_name: endpoints with this `nodeName` are local.
    zone: the node's topology zone; None: unknown, zone hints are ignored.
    families: the IP families this node serves; everything in another family is ignored.
    node_addresses: canonical; the node's primary address of each family, the primary family first. May be empty.
    detects_pods: whether some sources count as pods. The translation only says what pods would get
        (`Frontend.short_circuit`); the dataplane decides which sources are pods.
    external_ips_enabled: whether `spec.externalIPs` are captured.
    protection: the addresses and ports at which no external address and no node port is captured.
    """

    node_name: str
    zone: str | None = None
    families: tuple[Family, ...] = (Family.IPV4, Family.IPV6)
    node_addresses: tuple[str, ...] = ()
    detects_pods: bool = True
    external_ips_enabled: bool = True
    protection: Protection = Protection()
