"""How pods get their links: the network plugins of Debian's containernetworking-plugins, with routes between the nodes."""

from dataclasses import dataclass
from typing import Any

from nodeagent.lab.net.topology import NO_BRIDGE, POD_BRIDGE


@dataclass(frozen=True, slots=True)
class NetworkPlugin:
    """One of them. bridge: that its pods are ports of, or NO_BRIDGE."""

    name: str
    bridge: str
    options: dict[str, Any]

    def configuration(self, pod_cidrs: tuple[str, ...]) -> dict[str, Any]:
        """The list of plugins on a node whose pods have these ranges."""
        addresses = {
            "type": "host-local",
            "dataDir": "/run/cni/addresses",
            "ranges": [[{"subnet": cidr}] for cidr in pod_cidrs],
            "routes": [{"dst": "::/0" if ":" in cidr else "0.0.0.0/0"} for cidr in pod_cidrs],
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        first = {"type": self.name, "ipam": addresses, **self.options}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [first, ports]}


BRIDGE = NetworkPlugin("bridge", POD_BRIDGE, {"bridge": POD_BRIDGE, "isGateway": True, "hairpinMode": True})
"""Pods are ports of one bridge, as with flannel; what they send each other passes the rules of IP by way of br_netfilter."""

POINT_TO_POINT = NetworkPlugin("ptp", NO_BRIDGE, {})
"""Each pod has a link and a host route of its own, as with Calico."""

PLUGINS = {plugin.name: plugin for plugin in (BRIDGE, POINT_TO_POINT)}
