"""Bridges of this network namespace, read from the kernel: whether bridged packets pass the rules of IP, and the ports."""

import socket
from collections.abc import Mapping
from pathlib import Path

from nodeagent.diagnosis.trace.bridge_vlans import barrier
from nodeagent.model.addresses import Family
from nodeagent.wire.netlink import bridges, rtnetlink
from nodeagent.wire.netlink.neighbours import look_up_neighbour, read_hardware_address
from nodeagent.wire.netlink.socket import NetlinkSocket, retry

SETTINGS = Path("/proc/sys/net/bridge")


class Bridges:
    """Uses the caller's socket. What the kernel does not report is treated as harmless."""

    def __init__(self, netlink: NetlinkSocket) -> None:
        self._netlink = netlink
        self._filtering: dict[str, bool] = {}
        self._vlans: dict[int, bridges.PortVlans] | None = None

    def barrier(self, bridge: rtnetlink.Link, address: str) -> tuple[str, str]:
        """Returns why a bridge's VLANs stop frames between this node and a host behind it, and what to do; empty if
        they do not, or if the host's port is not known."""
        if not self._filters(bridge.name):
            return "", ""
        port = self.port_to(bridge, address)
        try:
            ports = {port: socket.if_nametoindex(port)} if port else {}
        except OSError:
            return "", ""
        return self.barred_ports(bridge, ports).get(port, ("", ""))

    def barred_ports(self, bridge: rtnetlink.Link, ports: Mapping[str, int]) -> dict[str, tuple[str, str]]:
        """Returns the ports, of `ports` (name → index), that the bridge's VLANs separate from this node, each with why
        and what to do."""
        if not self._filters(bridge.name):
            return {}
        found = {}
        for port, index in ports.items():
            try:
                if self._vlans is None:
                    read = retry(lambda: [bridges.read_vlans(body) for body in self._netlink.dump(bridges.get_vlans())])
                    self._vlans = {one.ifindex: one for one in read}
                own, other = self._vlans[bridge.ifindex], self._vlans[index]
            except TimeoutError:
                raise
            except (OSError, KeyError):
                continue
            reason = barrier(bridge.name, own, port, other)
            if reason[0]:
                found[port] = reason
        return found

    def _filters(self, bridge: str) -> bool:
        if bridge not in self._filtering:
            try:
                self._filtering[bridge] = bridges.filters_vlans(self._netlink.ask(rtnetlink.get_link(bridge)))
            except TimeoutError:
                raise
            except OSError:
                self._filtering[bridge] = False
        return self._filtering[bridge]

    def are_filtered(self, bridge: rtnetlink.Link, family: Family) -> bool:
        """Returns whether bridged packets pass the rules of IP: by the setting for all bridges, or the bridge's own
        (br_nf_pre_routing). Both have no effect without br_netfilter."""
        try:
            if int((SETTINGS / bridges.FOR_ALL_BRIDGES[family]).read_text()):
                return True
        except (OSError, ValueError):
            return False
        try:
            return family in bridges.families_filtered(self._netlink.ask(rtnetlink.get_link(bridge.name)))
        except TimeoutError:
            raise
        except OSError:
            return False

    def port_to(self, bridge: rtnetlink.Link, address: str) -> str:
        """Returns the port of a bridge that leads to a host; empty if the bridge has not learned it."""
        try:
            neighbour = self._netlink.ask(look_up_neighbour(address, bridge.ifindex))
            hardware_address = read_hardware_address(neighbour)
            return socket.if_indextoname(
                bridges.read_port(self._netlink.ask(bridges.look_up_port(hardware_address, bridge.ifindex)))
            )
        except TimeoutError:
            raise
        except OSError:
            return ""

    def sends_back(self, port: str) -> bool:
        """Returns whether a port sends frames back out that it received."""
        try:
            return bridges.sends_back(self._netlink.ask(rtnetlink.get_link(port)))
        except TimeoutError:
            raise
        except OSError:
            return True
