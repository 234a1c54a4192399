"""What kube-proxy's ipvs mode leaves besides rules and sets: virtual servers, and the interface `kube-ipvs0`."""

import errno
from collections.abc import Sequence
from pathlib import Path

from nodeagent.proxy.dataplane.interface_reading import find_link
from nodeagent.proxy.dataplane.kube_proxy import ipvs_messages as messages
from nodeagent.proxy.dataplane.kube_proxy import kube_proxy_names
from nodeagent.proxy.dataplane.kube_proxy.leftovers import Finding, LeftoverError
from nodeagent.wire.netlink import rtnetlink
from nodeagent.wire.netlink.socket import NetlinkSocket, retry
from nodeagent.wire.netlink.uapi.ip_vs import IPVS_GENL_NAME
from nodeagent.wire.netlink.uapi.netlink import NETLINK_GENERIC, NETLINK_ROUTE

_SHOWN = 3


class VirtualServers:
    """All virtual servers and `kube-ipvs0`, if that interface exists.

    A running kube-proxy removes virtual servers that are not its own (except those in `ipvs.excludeCIDRs`), so those that
    exist next to its interface are its own. Without the interface they belong to another program and stay. The interface
    is removed last: by it a second run sees that the first was interrupted.
    """

    @property
    def name(self) -> str:
        return "ipvs"

    def look(self) -> Finding:
        """Reads all virtual servers. Raises OSError. Whether the kernel has IPVS is read from /proc: a request would load it."""
        servers = self._servers() if Path("/proc/thread-self/net/ip_vs").exists() else ()
        index = _interface_index()
        if index is not None:
            lines = (
                *(f"virtual server {server.text}" for server in servers),
                f"interface {kube_proxy_names.INTERFACE}",
            )
            return Finding(lines, remove=lambda: _remove(servers, index))
        if not servers:
            return Finding()
        shown = ", ".join(server.text for server in servers[:_SHOWN])
        more = f" and {len(servers) - _SHOWN} more" if len(servers) > _SHOWN else ""
        return Finding(
            notes=(f"virtual servers stay, there is no {kube_proxy_names.INTERFACE} beside them: {shown}{more}",)
        )

    @staticmethod
    def _servers() -> tuple[messages.VirtualServer, ...]:
        def read() -> tuple[messages.VirtualServer, ...]:
            with NetlinkSocket(NETLINK_GENERIC) as netlink:
                family = messages.family_number(netlink.ask(messages.family_request(IPVS_GENL_NAME)))
                return tuple(messages.read_server(reply) for reply in netlink.dump(messages.servers_request(family)))

        return retry(read)


def _interface_index() -> int | None:
    with NetlinkSocket(NETLINK_ROUTE) as netlink:
        link = find_link(netlink, kube_proxy_names.INTERFACE)
        return None if link is None else link.ifindex


def _remove(servers: Sequence[messages.VirtualServer], interface: int) -> None:
    if servers:
        with NetlinkSocket(NETLINK_GENERIC) as netlink:
            family = messages.family_number(netlink.ask(messages.family_request(IPVS_GENL_NAME)))
            failures = retry(lambda: netlink.perform(messages.delete_request(family, server) for server in servers))
        _raise_failures([(servers[f.position].text, f.errno, f.detail) for f in failures if f.errno != errno.ESRCH])
    with NetlinkSocket(NETLINK_ROUTE) as netlink:
        failures = retry(lambda: netlink.perform([rtnetlink.delete_link(interface)]))
    _raise_failures([(kube_proxy_names.INTERFACE, f.errno, f.detail) for f in failures if f.errno != errno.ENODEV])


def _raise_failures(failures: Sequence[tuple[str, int, str]]) -> None:
    if not failures:
        return
    if all(code == errno.EPERM for _, code, _ in failures):
        raise PermissionError(errno.EPERM, "needs CAP_NET_ADMIN")
    shown = ", ".join(f"{what} ({detail})" for what, _, detail in failures[:_SHOWN])
    raise LeftoverError(f"not removed: {shown}" + (" and more" if len(failures) > _SHOWN else ""))
