"""Programs of tc, tcx, netkit and XDP at interfaces. They handle packets before or after all rules that a trace follows. Their
effect is unknown."""

import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from nodeagent.wire import bpf
from nodeagent.wire.netlink import link_programs as wire
from nodeagent.wire.netlink.rtnetlink import get_links
from nodeagent.wire.netlink.socket import NetlinkSocket, retry

EXPRESS = "XDP"
_MOST_HOSTS = 3
"""So many hosts are named in a note."""
_ATTACHED = {
    ("tcx", wire.INGRESS): bpf.TCX_INGRESS,
    ("tcx", wire.EGRESS): bpf.TCX_EGRESS,
    ("netkit", "from this node"): bpf.NETKIT_PRIMARY,
    ("netkit", "from the pod"): bpf.NETKIT_PEER,
}
"""Of programs that only bpf(2) shows: the hook, and which packets they get."""


class LinkProgram(Struct, frozen=True):
    """A program on an interface that may change or drop packets.
    name: as `tc` or `ip` shows it, or the number of the program. interface, where: its interface, and which packets it gets: `ingress`,
    `egress`, or XDP. hook: `tcx` or `netkit`, for one that only bpf(2) shows, else empty."""

    name: str
    interface: str
    where: str
    hook: str = ""

    @property
    def title(self) -> str:
        """Which program it is, and where."""
        if self.where == EXPRESS:
            return f"the XDP program {self.name} at {self.interface}"
        if self.hook:
            return f"the {self.hook} program {self.name} at {self.interface} ({self.where})"
        return f"the tc filter {self.name} at {self.interface} ({self.where})"

    @property
    def command(self) -> str:
        """The command that shows it."""
        if self.where == EXPRESS:
            return f"ip -d link show dev {self.interface}"
        if self.hook:
            return f"bpftool net show dev {self.interface}"
        return f"tc filter show dev {self.interface} {self.where}"

    def __str__(self) -> str:
        return f"{self.title} may drop or change it: not followed: see {self.command}"


def read_link_programs() -> tuple[LinkProgram, ...]:
    """Returns the programs of all interfaces in this network namespace. Raises OSError."""
    with NetlinkSocket(socket.NETLINK_ROUTE) as netlink:
        return retry(lambda: tuple(dict.fromkeys(_programs(netlink))))


def _programs(netlink: NetlinkSocket) -> Iterator[LinkProgram]:
    names = dict(socket.if_nameindex())
    for index, number in [wire.read_express_program(body) for body in netlink.dump(get_links())]:
        if number and index in names:
            yield LinkProgram(str(number), names[index], EXPRESS)
    for index, name in names.items():
        yield from _attached(index, name)
    queueing = [wire.read_queueing(body) for body in netlink.dump(wire.get_queueing())]
    for index, kind in queueing:
        if kind not in wire.BEFORE_IP or index not in names:
            continue
        for direction in (wire.INGRESS, wire.EGRESS) if kind == "clsact" else (wire.INGRESS,):
            for name in [wire.read_filter(body) for body in netlink.dump(wire.get_filters(index, direction))]:
                if name:
                    yield LinkProgram(name, names[index], direction)


def _attached(index: int, interface: str) -> Iterator[LinkProgram]:
    """Yields the programs of tcx and netkit at an interface; none if this process may not see them."""
    for (hook, where), kind in _ATTACHED.items():
        with suppress(OSError):
            yield from [LinkProgram(str(one), interface, where, hook) for one in bpf.attached_programs(index, kind)]


def programs_on_the_way(programs: Collection[LinkProgram], interfaces: Collection[str]) -> list[LinkProgram]:
    """Returns the programs that handle a packet or its answer."""
    return [one for one in programs if one.interface in interfaces]


def note_of_unlearned(programs: Sequence[LinkProgram], bridge: str, hosts: Sequence[str]) -> str:
    """Returns a note on programs, at least one, at ports of a bridge which has not learned behind which port these hosts are."""
    shown = ", ".join(hosts[:_MOST_HOSTS]) + (", …" if len(hosts) > _MOST_HOSTS else "")
    more = f"; its ports have {len(programs) - 1} more" if len(programs) > 1 else ""
    return f"{programs[0]}; the bridge {bridge} has not learned the port of {shown}{more}"
