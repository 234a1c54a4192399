"""Interfaces, addresses and routes of one host, read and changed with pyroute2: the second opinion on rtnetlink.

Worlds are wired by `ip -batch` and the agent packs its own messages (docs/decisions/0021-wiring-of-worlds.md).
"""

import ipaddress
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import family_of
from tests.harness.worlds.world import World

IFA_F_NODAD = 0x02
PATIENCE_SECONDS = 60.0
RTNH_F_ONLINK = 4
RT_TABLE_LOCAL = 255
RTN_UNICAST = 1

T = TypeVar("T")


def length_of(address: str) -> int:
    """The prefix length of an address alone, in bits."""
    return family_of(address).address_length * 8


class Links:
    """Of a member of a world. Raises what pyroute2 raises: NetlinkError with the kernel's errno."""

    def __init__(self, world: World, member: str) -> None:
        self._namespace = world.namespace(member)

    def _ask(self, question: Callable[[Any], T]) -> T:
        """The answer to a question put to an IPRoute in the namespace; its socket is closed then."""

        from pyroute2 import IPRoute  # noqa: PLC0415 - takes 0.14 s, and every process that collects tests imports this file

        def work() -> T:
            with IPRoute() as kernel:
                return question(kernel)

        return inside(self._namespace, work)

    @property
    def names(self) -> set[str]:
        """Of all interfaces."""
        return self._ask(lambda kernel: {link.get("ifname") for link in kernel.get_links()})

    def addresses(self, interface: str) -> set[str]:
        """Of an interface, both families, without their lengths."""

        def read(kernel: Any) -> set[str]:
            index = _index(kernel, interface)
            return {found.get("address") for found in kernel.get_addr(index=index) if found["index"] == index}

        return self._ask(read)

    def local_routes(self, interface: str) -> set[str]:
        """Single IPv6 addresses that are local by a route over an interface."""
        return self._ask(lambda kernel: _local_routes(kernel, interface))

    def ranges(self, interface: str) -> set[str]:
        """IPv6 ranges that are routed over an interface by the table `local`."""

        def read(kernel: Any) -> set[str]:
            found = kernel.get_routes(**_ranges_over(kernel, interface))
            return {f"{route.get('dst')}/{route['dst_len']}" for route in found if route["type"] == RTN_UNICAST}

        return self._ask(read)

    def remove_range(self, interface: str, cidr: str) -> None:
        """Remove the route to one of them."""
        self._ask(lambda kernel: kernel.route("del", dst=cidr, **_ranges_over(kernel, interface)))

    def add_bridge(self, interface: str, *addresses: str) -> None:
        """A bridge that is up and has these addresses."""

        def add(kernel: Any) -> None:
            kernel.link("add", ifname=interface, kind="bridge")
            _change_addresses(kernel, "add", interface, addresses)
            kernel.link("set", index=_index(kernel, interface), state="up")

        self._ask(add)

    def remove(self, interface: str) -> None:
        """Delete an interface."""
        self._ask(lambda kernel: kernel.link("del", index=_index(kernel, interface)))

    def set_down(self, interface: str) -> None:
        """Take an interface down."""
        self._ask(lambda kernel: kernel.link("set", index=_index(kernel, interface), state="down"))

    def add_addresses(self, interface: str, *addresses: str) -> None:
        """Give an interface addresses of full length, in use when this returns; one that is down has them in use later."""

        def add(kernel: Any) -> None:
            _change_addresses(kernel, "add", interface, addresses)
            if kernel.get_links(_index(kernel, interface))[0]["state"] == "up":
                _wait_until_local(kernel, interface, {address for address in addresses if ":" in address})

        self._ask(add)

    def remove_addresses(self, interface: str, *addresses: str) -> None:
        """Take such addresses away again."""
        self._ask(lambda kernel: _change_addresses(kernel, "del", interface, addresses))

    def flush_addresses(self, interface: str) -> None:
        """Take all addresses from an interface."""
        self._ask(lambda kernel: kernel.flush_addr(index=_index(kernel, interface)))

    def flush_local_routes(self, interface: str) -> None:
        """Remove the IPv6 routes of the table `local` that lead over an interface."""
        wanted = {"family": socket.AF_INET6, "table": RT_TABLE_LOCAL}
        self._ask(lambda kernel: kernel.flush_routes(**wanted, oif=_index(kernel, interface)))

    def add_route(self, address: str, via: str, interface: str) -> None:
        """A way to a single address through a neighbour on an interface."""

        def add(kernel: Any) -> None:
            index = _index(kernel, interface)
            kernel.route("add", dst=_prefix(address), gateway=via, oif=index, flags=RTNH_F_ONLINK)

        self._ask(add)

    def remove_route(self, address: str) -> None:
        """Remove it."""
        self._ask(lambda kernel: kernel.route("del", dst=_prefix(address)))


def _index(kernel: Any, interface: str) -> int:
    (index,) = kernel.link_lookup(ifname=interface)
    return int(index)


def _prefix(address: str) -> str:
    return str(ipaddress.ip_network(address))


def _ranges_over(kernel: Any, interface: str) -> dict[str, int]:
    return {"family": socket.AF_INET6, "table": RT_TABLE_LOCAL, "oif": _index(kernel, interface)}


def _local_routes(kernel: Any, interface: str) -> set[str]:
    found = kernel.get_routes(family=socket.AF_INET6, table=RT_TABLE_LOCAL, oif=_index(kernel, interface))
    return {route.get("dst") for route in found if route["dst_len"] == 128}


def _wait_until_local(kernel: Any, interface: str, addresses: set[str]) -> None:
    """A worker of the kernel makes the routes of IPv6 addresses, also without DAD (net/ipv6/addrconf.c, addrconf_dad_work):
    until then packets to them go on to the next hop, and their connections stay without translation."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while missing := {str(ipaddress.ip_address(address)) for address in addresses} - _local_routes(kernel, interface):
        assert time.monotonic() < ends, f"not in use on {interface}: {missing}"
        time.sleep(0.001)


def _change_addresses(kernel: Any, command: str, interface: str, addresses: tuple[str, ...]) -> None:
    index = _index(kernel, interface)
    for address in addresses:
        flags = {"flags": IFA_F_NODAD} if ":" in address and command == "add" else {}
        kernel.addr(command, index=index, address=address, prefixlen=length_of(address), **flags)
