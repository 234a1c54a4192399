"""What nftables says of a host's rules, by Debian's bindings of libnftables: the second opinion on nf_tables."""

from typing import Any

from nodeagent.cli.second_reader import SecondReader
from nodeagent.lab.net.network_namespaces import inside

Item = dict[str, Any]
"""An object of libnftables-json(5), without the name of its kind."""


class Nft:
    """Reads the namespace of this name. Raises NoSecondReader without the bindings, OSError when nft cannot list."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def tables(self) -> list[Item]:
        """All tables."""
        return self._listed("list tables", "table")

    def base_chains(self) -> list[Item]:
        """All chains that a hook leads to."""
        return [chain for chain in self._listed("list chains", "chain") if "hook" in chain]

    def elements(self, family: str, table: str, name: str) -> list[Any]:
        """What is in a map."""
        return [
            element
            for one in self._listed(f"list map {family} {table} {name}", "map")
            for element in one.get("elem", [])
        ]

    def _listed(self, command: str, kind: str) -> list[Item]:
        # A handle of libnftables keeps the namespace of the thread that makes it.
        listed = inside(self._namespace, lambda: SecondReader().listed(command))
        return [item[kind] for item in listed if kind in item]
