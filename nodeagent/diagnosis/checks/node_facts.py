"""What was read of a node, as values (pure)."""

from collections.abc import Mapping

from msgspec import Struct

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.chains_here import ChainFact


class LinkFact(Struct, frozen=True):
    """An interface. kind: `bridge`, `dummy`, …; empty for hardware. has_ports: others are ports of it. filtered: the families
    whose packets meet the rules of IP on this bridge by a setting of its own."""

    name: str
    kind: str = ""
    has_ports: bool = False
    filtered: frozenset[Family] = frozenset()


class Facts(Struct, frozen=True):
    """settings: sysctls below net, by path (`ipv4/ip_forward`); what is not there is missing. counters: of the kernel's
    statistics, by name. pod_cidrs: of our tables. programmed: the families of which there is a table
    of ours. kube_proxy: its pid. leading: interface → whom it leads to, in words, of those that lead to pods or to everybody else
    (IPv4)."""

    chains: tuple[ChainFact, ...] = ()
    links: tuple[LinkFact, ...] = ()
    settings: Mapping[str, int] = {}
    counters: Mapping[str, int] = {}
    pod_cidrs: tuple[str, ...] = ()
    programmed: frozenset[Family] = frozenset()
    kube_proxy: int | None = None
    leading: Mapping[str, str] = {}

    def tables(self) -> frozenset[str]:
        """The names of all tables, without their family."""
        return frozenset(chain.table.partition(" ")[2] for chain in self.chains)
