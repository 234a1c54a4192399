"""The text of iptables-save, and the input of iptables-restore that removes kube-proxy's part of it (pure).

Format: iptables/iptables-save.c. ``*table``, then ``:CHAIN POLICY [packets:bytes]`` with policy ``-`` for chains that
are not built in, then ``-A CHAIN …``, then ``COMMIT``; text values are quoted, with ``\\`` before ``"``, ``'`` and ``\\``.
"""

import re

from nodeagent.proxy.dataplane.kube_proxy.rules import IptablesTable, Removal, TableRule

_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_COMMENT = re.compile(r'--comment (?:"((?:\\.|[^"\\])*)"|(\S+))')
_TARGET = re.compile(r"(?:^| )(?:-j|-g) (\S+)")
_ESCAPED = re.compile(r"\\(.)")
_COUNTERS = re.compile(r"^\[\d+:\d+\] ")


def parse_saved(text: str) -> tuple[IptablesTable, ...]:
    """Returns the tables of an iptables-save output, in its order. Ignores lines of other kinds."""
    tables = []
    name = ""
    chains: dict[str, str | None] = {}
    rules: list[TableRule] = []
    for raw in text.splitlines():
        line = _COUNTERS.sub("", raw.strip())
        if line.startswith("*"):
            name, chains, rules = line[1:], {}, []
        elif line.startswith(":"):
            chain, policy = line[1:].split()[:2]
            chains[chain] = None if policy == "-" else policy
        elif line.startswith("-A "):
            rules.append(_parse_rule(line))
        elif line == "COMMIT":
            tables.append(IptablesTable(name, chains, tuple(rules)))
    return tuple(tables)


def _parse_rule(line: str) -> TableRule:
    _, chain, *rest = line.split(" ", 2)
    text = rest[0] if rest else ""
    comment = _COMMENT.search(text)
    target = _TARGET.search(_QUOTED.sub('""', text))
    return TableRule(
        chain,
        target[1] if target else "",
        _ESCAPED.sub(r"\1", comment[1] or comment[2] or "") if comment else "",
        text,
    )


def restore_input(removal: Removal) -> str:
    """Returns the input for ``iptables-restore --noflush`` that removes everything from one table or, on an error, nothing.

    Naming a chain empties it, so that chains that lead to each other can be deleted in any order.
    """
    lines = [
        f"*{removal.table}",
        *(f":{chain} - [0:0]" for chain in removal.chains),
        *(f"-D {rule.chain} {rule.text}" for rule in removal.rules),
        *(f"-X {chain}" for chain in removal.chains),
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"
