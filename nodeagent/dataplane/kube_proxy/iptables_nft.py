"""Tables of iptables-nft, read and changed through nf_tables itself.

It needs no tool, also works on tables that iptables-nft refuses to list because somebody added rules of other kinds,
and changes all tables of a family in one transaction. Message layouts: linux/netfilter/nf_tables.h,
nf_tables_compat.h, xt_comment.h.
"""

from collections.abc import Iterable, Iterator

from nodeagent.dataplane.kube_proxy import names
from nodeagent.dataplane.kube_proxy.leftovers import Finding
from nodeagent.dataplane.kube_proxy.rules import IptablesTable, Removal, TableRule, plan_removal
from nodeagent.dataplane.nft.ruleset import Ruleset
from nodeagent.dataplane.nft.transaction import (
    DELCHAIN,
    DELRULE,
    GETCHAIN,
    GETRULE,
    Message,
    Transaction,
)
from nodeagent.model.addresses import Family
from nodeagent.netlink.framing import attribute_map, attributes, string, text_of
from nodeagent.netlink.netfilter import nfproto, u64

_CHAIN_NAME, _CHAIN_HOOK, _CHAIN_POLICY = 3, 4, 5
_RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS, _RULE_USER_DATA = 2, 3, 4, 7
_EXPRESSION_NAME, _EXPRESSION_DATA = 1, 2
_IMMEDIATE_DATA, _DATA_VERDICT, _VERDICT_CHAIN = 2, 2, 2
_MATCH_NAME, _MATCH_INFO = 1, 3
_COMMENT_OF_RULE = 0
_POLICIES = {0: "DROP", 1: "ACCEPT"}


def parse_chain(reply: memoryview) -> tuple[str, str | None]:
    """Name, and policy of a base chain (None: no base chain), of a GETCHAIN reply."""
    found = attribute_map(reply)
    policy = None
    if _CHAIN_HOOK in found:
        policy = _POLICIES.get(int.from_bytes(found.get(_CHAIN_POLICY, b""), "big"), "ACCEPT")
    return text_of(found[_CHAIN_NAME]), policy


def parse_rule(reply: memoryview) -> TableRule:
    """Of a GETRULE reply."""
    found = attribute_map(reply)
    target = ""
    comment = _user_comment(found.get(_RULE_USER_DATA, memoryview(b"")))
    for _, expression in attributes(found.get(_RULE_EXPRESSIONS, memoryview(b""))):
        parts = attribute_map(expression)
        kind, data = text_of(parts[_EXPRESSION_NAME]), parts.get(_EXPRESSION_DATA, memoryview(b""))
        if kind == "immediate":
            target = _verdict_chain(data) or target
        elif kind == "match":
            comment = _match_comment(data) or comment
    return TableRule(text_of(found[_RULE_CHAIN]), target, comment, handle=int.from_bytes(found[_RULE_HANDLE], "big"))


def _verdict_chain(immediate: memoryview) -> str:
    """Where a jump or goto leads; empty for other verdicts and values."""
    found = attribute_map(immediate)
    for kind, data in attributes(found.get(_IMMEDIATE_DATA, memoryview(b""))):
        if kind == _DATA_VERDICT:
            verdict = attribute_map(data)
            return text_of(verdict[_VERDICT_CHAIN]) if _VERDICT_CHAIN in verdict else ""
    return ""


def _match_comment(match: memoryview) -> str:
    """The text of ``-m comment``: struct xt_comment_info, 256 bytes up to the first NUL."""
    found = attribute_map(match)
    if text_of(found[_MATCH_NAME]) != "comment":
        return ""
    return bytes(found[_MATCH_INFO]).split(b"\0", 1)[0].decode(errors="replace")


def _user_comment(data: memoryview) -> str:
    """The comment in a rule's user data (type, length, value each), where nft keeps it."""
    offset = 0
    while offset + 2 <= len(data):
        kind, length = data[offset], data[offset + 1]
        if kind == _COMMENT_OF_RULE:
            return text_of(data[offset + 2 : offset + 2 + length])
        offset += 2 + length
    return ""


def removal_messages(removal: Removal) -> Iterator[Message]:
    """Empty the chains, take the rules out of other chains, then delete the chains."""
    table = string(1, removal.table)
    for chain in removal.chains:
        yield Message(DELRULE, 0, table + string(2, chain), f"rules of chain {chain}")
    for rule in removal.rules:
        body = table + string(2, rule.chain) + u64(3, rule.handle)
        yield Message(DELRULE, 0, body, f"rule {rule}")
    for chain in removal.chains:
        yield Message(DELCHAIN, 0, table + string(3, chain), f"chain {chain}")


class NftTables:
    """The tables nat, filter and mangle of iptables-nft (IPv4) or ip6tables-nft (IPv6)."""

    def __init__(self, socket: Ruleset, family: Family) -> None:
        self._socket = socket
        self._family = family

    @property
    def name(self) -> str:
        return "iptables-nft" if self._family is Family.IPV4 else "ip6tables-nft"

    def look(self) -> Finding:
        """What of kube-proxy they hold. Raises NotPermitted, KernelUnclear."""
        removals = [plan_removal(self._read(table)) for table in names.CHAINS]
        return Finding(
            tuple(line for removal in removals for line in removal.lines()),
            tuple(note for removal in removals for note in removal.notes()),
            lambda: self._remove(removals),
        )

    def _read(self, table: str) -> IptablesTable:
        chains = dict(parse_chain(data) for data in self._dump(GETCHAIN, table))
        if not any(names.is_chain(table, chain) for chain in chains):
            return IptablesTable(table, {}, ())
        return IptablesTable(table, chains, tuple(parse_rule(data) for data in self._dump(GETRULE, table)))

    def _dump(self, kind: int, table: str) -> Iterator[memoryview]:
        """Objects of one table; the kernel filters only some dumps by table."""
        try:
            for data in self._socket.dump(kind, nfproto(self._family), string(1, table)):
                if text_of(attribute_map(data)[1]) == table:
                    yield data
        except FileNotFoundError:
            return

    def _remove(self, removals: Iterable[Removal]) -> None:
        transaction = Transaction(self._family, {})
        for removal in removals:
            transaction.messages.extend(removal_messages(removal))
        self._socket.commit(transaction)
