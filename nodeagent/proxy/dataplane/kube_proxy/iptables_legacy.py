"""xtables tables, through the legacy tools of the iptables package.

The tools run only if such tables exist: a request for one that does not exist would create it.
"""

import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.kube_proxy import kube_proxy_names
from nodeagent.proxy.dataplane.kube_proxy.iptables_save import parse_saved, restore_input
from nodeagent.proxy.dataplane.kube_proxy.leftovers import Finding, LeftoverError
from nodeagent.proxy.dataplane.kube_proxy.rules import Removal, plan_removal

_LOCK_WAIT_SECONDS = 30
_TOOL_SECONDS = 300.0
_LISTS = {Family.IPV4: "ip_tables_names", Family.IPV6: "ip6_tables_names"}


class Tools(Protocol):
    """The programs of the iptables package."""

    def find(self, program: str) -> bool:
        """Returns whether the program is installed."""
        ...

    def run(self, argv: Sequence[str], text: str = "") -> str:
        """Runs a program with `text` as its input; returns its output. Raises LeftoverError with the program's error message."""
        ...


class InstalledTools:
    """Programs in the given directories."""

    def __init__(self, path: Sequence[Path]) -> None:
        self._path = tuple(path)

    def find(self, program: str) -> bool:
        return self._located(program) is not None

    def _located(self, program: str) -> Path | None:
        return next((place / program for place in self._path if (place / program).is_file()), None)

    def run(self, argv: Sequence[str], text: str = "") -> str:
        located = self._located(argv[0])
        if located is None:
            raise LeftoverError(f"the program {argv[0]} is not installed")
        try:
            result = subprocess.run(  # noqa: S603 - a fixed command line
                [str(located), *argv[1:]],
                input=text,
                capture_output=True,
                text=True,
                timeout=_TOOL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LeftoverError(f"{argv[0]} did not end within {_TOOL_SECONDS:.0f} s") from error
        if result.returncode:
            complaint = " ".join(result.stderr.split()) or f"exit status {result.returncode}"
            raise LeftoverError(f"{argv[0]}: {complaint}")
        return result.stdout


def legacy_tables(family: Family) -> frozenset[str]:
    """Returns the xtables tables that exist in this network namespace. Raises PermissionError without CAP_NET_ADMIN."""
    try:
        return frozenset((Path("/proc/thread-self/net") / _LISTS[family]).read_text().split())
    except FileNotFoundError:
        return frozenset()


class LegacyTables:
    """The tables nat, filter and mangle of iptables-legacy (IPv4) or ip6tables-legacy (IPv6).

    existing: returns the names of the tables that exist in this network namespace.
    """

    def __init__(
        self, tools: Tools, family: Family, existing: Callable[[Family], frozenset[str]] = legacy_tables
    ) -> None:
        self._tools = tools
        self._family = family
        self._existing = existing
        self._command = "iptables" if family is Family.IPV4 else "ip6tables"

    @property
    def name(self) -> str:
        return f"{self._command}-legacy"

    def look(self) -> Finding:
        """Returns what the tables hold of kube-proxy. Raises LeftoverError if the tools are missing or fail."""
        tables = self._existing(self._family) & kube_proxy_names.CHAINS.keys()
        if not tables:
            return Finding()
        prefix = self._prefix(tables)
        saved = parse_saved(self._tools.run([f"{prefix}-save"]))
        removals = [plan_removal(table) for table in saved if table.name in tables]
        return Finding(
            tuple(line for removal in removals for line in removal.lines()),
            tuple(note for removal in removals for note in removal.notes()),
            lambda: self._remove(prefix, removals),
        )

    def _prefix(self, tables: Iterable[str]) -> str:
        """Returns the prefix of the -save and -restore tools to call: the ones named legacy, else the plain ones if they are legacy."""
        if self._tools.find(f"{self._command}-legacy-save"):
            return f"{self._command}-legacy"
        if self._tools.find(f"{self._command}-save"):
            version = self._tools.run([f"{self._command}-save", "--version"])
            if "nf_tables" not in version:
                return self._command
        raise LeftoverError(
            f"there are tables of it ({', '.join(sorted(tables))}), but no program {self._command}-legacy-save to look into them:"
            " install the iptables package and repeat"
        )

    def _remove(self, prefix: str, removals: Sequence[Removal]) -> None:
        text = "".join(restore_input(removal) for removal in removals if not removal.empty)
        self._tools.run([f"{prefix}-restore", "--noflush", f"--wait={_LOCK_WAIT_SECONDS}"], text)
