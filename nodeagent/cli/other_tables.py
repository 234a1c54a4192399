"""The tables of others on this node, through libnftables and, for what it cannot say, straight from the kernel."""

import re
from collections.abc import Iterator
from pathlib import Path

from nodeagent.cli.second_reader import NoSecondReader, SecondReader
from nodeagent.dataplane.errors import DataplaneError
from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.ruleset import Ruleset
from nodeagent.model.addresses import Family
from nodeagent.trace.kernel_rules import Place, extensions_in, table_names
from nodeagent.trace.others import OtherTable, read_table

OWN = schema.TABLE
_FAMILIES = {Family.IPV4: ("ip", "inet"), Family.IPV6: ("ip6", "inet")}
_LEGACY = {Family.IPV4: "ip_tables_names", Family.IPV6: "ip6_tables_names"}
_NET = Path("/proc/thread-self/net")
_CHAIN = re.compile(r"\s*chain (\S+) \{")
_RULE = re.compile(r"\t\t(.*) # handle (\d+)$")


def read_others(ruleset: Ruleset, family: Family) -> tuple[tuple[OtherTable, ...], tuple[str, ...]]:
    """The tables of others that packets of a family meet, and what of the node could not be read, one line each."""
    notes = list(_unseen(family))
    try:
        reader = SecondReader()
    except NoSecondReader as error:
        return (), (*notes, f"tables of others were not read: {error}")
    found = []
    for kind, name in table_names(ruleset):
        if kind in _FAMILIES[family] and not name.startswith(OWN):
            try:
                found.append(_read(reader, ruleset, kind, name))
            except (OSError, ValueError, LookupError, DataplaneError) as error:
                notes.append(f"table {kind} {name} was not read: {error}")
        elif kind in ("netdev", "bridge"):
            notes.append(f"table {kind} {name} is not evaluated: packets meet it outside of IP")
    return tuple(found), tuple(notes)


def _read(reader: SecondReader, ruleset: Ruleset, kind: str, name: str) -> OtherTable:
    listed = reader.listed(f"list table {kind} {name}")
    texts = dict(_texts(reader.text(f"list table {kind} {name}")))
    extended = any("xt" in part for item in listed if "rule" in item for part in item["rule"].get("expr", ()))
    calls = extensions_in(ruleset, kind, name) if extended else {}
    return read_table(f"{kind} {name}", listed, texts, calls)


def _texts(listing: str) -> Iterator[tuple[Place, str]]:
    """The rules of a listing with handles, by chain and handle."""
    chain = ""
    for line in listing.splitlines():
        if found := _CHAIN.match(line):
            chain = found[1]
        elif found := _RULE.match(line):
            yield (chain, int(found[2])), found[1]


def _unseen(family: Family) -> Iterator[str]:
    """What nft does not show: the tables of iptables-legacy."""
    try:
        names = (_NET / _LEGACY[family]).read_text().split()
    except OSError:
        return
    if names:
        tool = "iptables-legacy" if family is Family.IPV4 else "ip6tables-legacy"
        yield f"{tool} has tables here ({', '.join(sorted(names))}); they are not evaluated: {tool}-save shows them"
