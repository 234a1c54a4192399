"""Whether what the kernel told about the service interface contradicts what was programmed (pure).

The agent's own changes are told as well. They are no contradiction: what counts is where each address, route and the
interface itself ended up, not how often they were mentioned.
"""

from typing import NamedTuple

from nodeagent.dataplane.interface_claim import MARK
from nodeagent.dataplane.interface_plan import Present
from nodeagent.model.addresses import family_of
from nodeagent.netlink.rtnetlink import InterfaceAddress, Link


class Programmed(NamedTuple):
    """What an interface carries as far as we know, and the index by which a replaced one is noticed."""

    ifindex: int
    present: Present


class Told:
    """The latest that was told of each part of the interface called `name`, since the last `clear`."""

    def __init__(self, name: str, ifindex: int | None) -> None:
        self._name = name
        self._ifindex = ifindex
        self.clear()

    def clear(self) -> None:
        """Forget what was told; which index the interface has stays known."""
        self._links: dict[int, Link | None] = {}
        self._addresses: dict[tuple[str, int], bool] = {}
        self._routes: dict[str, bool] = {}
        self._over_lo: dict[str, bool] = {}
        self._incomplete = False

    def lose(self, ifindex: int | None) -> None:
        """Something was told that could not be kept; the interface has this index now."""
        self._incomplete = True
        self._ifindex = ifindex

    @property
    def ifindex(self) -> int | None:
        """Of the interface that has our name or had it last; None: there was none."""
        return self._ifindex

    def link(self, link: Link, *, gone: bool) -> bool:
        """Take in what was told of an interface; whether it concerns ours."""
        if link.name == self._name and not gone:
            self._ifindex = link.ifindex
        if link.name != self._name and link.ifindex != self._ifindex:
            return False
        self._links[link.ifindex] = None if gone else link
        return True

    def address(self, found: InterfaceAddress, *, gone: bool) -> bool:
        """Take in what was told of an address; whether it concerns our interface."""
        if found.ifindex != self._ifindex:
            return False
        self._addresses[found.address, found.prefix_length] = not gone
        return True

    def route(self, address: str, *, gone: bool) -> None:
        """Take in what was told of one of our local routes."""
        self._routes[address] = not gone

    def route_over_lo(self, address: str, *, gone: bool) -> None:
        """Take in what was told of a route over ``lo``, ours or another agent's."""
        self._over_lo[address] = not gone

    def contradicts(self, programmed: Programmed) -> bool:
        """Whether the interface may differ from what was programmed; always when something was lost."""
        present = programmed.present
        return (
            self._incomplete
            or any(not as_programmed(link, self._name) for link in self._links.values())
            or programmed.ifindex != self._ifindex
            or any(
                there != (prefix_length == _full_length(address) and address in present.addresses)
                for (address, prefix_length), there in self._addresses.items()
            )
            or any(there != (address in present.routes) for address, there in self._routes.items())
            or any(there != (address in present.over_lo) for address, there in self._over_lo.items())
        )


def as_programmed(link: Link | None, name: str) -> bool:
    """Whether the interface is there and has all the settings that it was given."""
    return link is not None and link.name == name and link.up and not link.resolves and link.alias == MARK


def _full_length(address: str) -> int:
    return family_of(address).address_length * 8
