"""Reads the tables of other programs on this node through libnftables, and directly from the kernel what that lacks."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from nodeagent.cli.second_reader import NoSecondReader, SecondReader
from nodeagent.diagnosis.trace.kernel_rules import OUTSIDE, RulePosition, extensions_in, ipsec_policies, table_names
from nodeagent.diagnosis.trace.legacy_rules import TOOLS, read_legacy_tables
from nodeagent.diagnosis.trace.others import OtherTable, read_table
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import DataplaneError
from nodeagent.proxy.dataplane.kube_proxy.iptables_legacy import InstalledTools, Tools, legacy_tables
from nodeagent.proxy.dataplane.kube_proxy.leftovers import LeftoverError
from nodeagent.proxy.dataplane.program import schema

OWN = schema.TABLE
_FAMILIES = {Family.IPV4: ("ip", "inet"), Family.IPV6: ("ip6", "inet")}
INSTALLED = InstalledTools(tuple(map(Path, ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"))))
_CHAIN = re.compile(r"\s*chain (\S+) \{")
_RULE = re.compile(r"\t\t(.*) # handle (\d+)$")


def read_others(ruleset: Ruleset, family: Family) -> tuple[tuple[OtherTable, ...], tuple[str, ...]]:
    """Returns the tables of other programs that packets of a family meet, and a note for each that could not be read."""
    legacy, notes = read_legacy(family)
    found, tables = list(legacy), list(table_names(ruleset))
    others = [(kind, name) for kind, name in tables if kind in _FAMILIES[family] and not name.startswith(OWN)]
    try:
        reader = SecondReader(program=True) if others else None
    except NoSecondReader as error:
        reader = None
        notes.append(f"{_first_of(others)} was not read: {error}")
    if reader is not None:
        for kind, name in others:
            try:
                found.append(_read_table(reader, ruleset, kind, name))
            except (OSError, ValueError, LookupError, DataplaneError) as error:
                notes.append(f"table {kind} {name} was not read: {error}")
    notes += (
        f"table {kind} {name} is not evaluated: packets meet it outside of IP"
        for kind, name in tables
        if kind in OUTSIDE
    )
    policies = list(ipsec_policies())
    if policies:
        blocking = sum(one.blocks for one in policies)
        blocked = f" ({blocking} block)" if blocking else ""
        notes.append(f"{len(policies)} policies of IPsec{blocked} are not evaluated: see ip xfrm policy")
    return tuple(found), tuple(notes)


def _first_of(tables: list[tuple[str, str]]) -> str:
    kind, name = tables[0]
    return f"table {kind} {name}" + (f" (and {len(tables) - 1} more)" if len(tables) > 1 else "")


def _read_table(reader: SecondReader, ruleset: Ruleset, kind: str, name: str) -> OtherTable:
    listed = reader.listed(f"list table {kind} {name}")
    texts = dict(_rule_texts(reader.text(f"list table {kind} {name}")))
    extended = any("xt" in part for item in listed if "rule" in item for part in item["rule"].get("expr", ()))
    calls = extensions_in(ruleset, kind, name) if extended else {}
    return read_table(f"{kind} {name}", listed, texts, calls)


def _rule_texts(listing: str) -> Iterator[tuple[RulePosition, str]]:
    """Yields the rules of a listing: ((chain, handle), text)."""
    chain = ""
    for line in listing.splitlines():
        if found := _CHAIN.match(line):
            chain = found[1]
        elif found := _RULE.match(line):
            yield (chain, int(found[2])), found[1]


def read_legacy(
    family: Family, tools: Tools = INSTALLED, existing: Callable[[Family], frozenset[str]] = legacy_tables
) -> tuple[tuple[OtherTable, ...], list[str]]:
    """Returns the tables of iptables-legacy, which nft does not list, and notes if they could not be read.

    The tool is run only if such tables exist, because running it creates them.
    """
    tool, names = TOOLS[family], frozenset[str]()
    try:
        names = existing(family)
        if not names:
            return (), []
        return read_legacy_tables(tools.run([f"{tool}-save"]), family), []
    except (LeftoverError, OSError, ValueError, LookupError) as error:
        there = f" ({', '.join(sorted(names))})" if names else ""
        return (), [f"the tables of {tool} here{there} are not evaluated: {error}"]
