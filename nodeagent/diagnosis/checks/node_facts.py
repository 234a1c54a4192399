"""The facts that were read from a node, as values (pure)."""

from collections.abc import Mapping

from msgspec import Struct

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.chains_here import ChainFact


class LinkFact(Struct, frozen=True):
    """A network interface. kind: `bridge`, `dummy`, …; empty for hardware. has_ports: whether other interfaces are its ports.
    filtered: the families whose bridged packets pass the rules of IP because of a setting of this bridge."""

    name: str
    kind: str = ""
    has_ports: bool = False
    filtered: frozenset[Family] = frozenset()


class Facts(Struct, frozen=True):
    """The input of all checks. settings: sysctls of net by path (`ipv4/ip_forward`), without those that do not exist.
    counters: statistics of the kernel by name. pod_cidrs: the pod ranges in our tables. programmed: the families that have
    a table of ours. kube_proxy: the pid of a running kube-proxy. leading: interface → whom its IPv4 routes lead to, in
    words; only interfaces that lead to pods or have a default route."""

    chains: tuple[ChainFact, ...] = ()
    links: tuple[LinkFact, ...] = ()
    settings: Mapping[str, int] = {}
    counters: Mapping[str, int] = {}
    pod_cidrs: tuple[str, ...] = ()
    programmed: frozenset[Family] = frozenset()
    kube_proxy: int | None = None
    leading: Mapping[str, str] = {}

    def tables(self) -> frozenset[str]:
        """Returns the names of all tables, without their family."""
        return frozenset(chain.table.partition(" ")[2] for chain in self.chains)
