"""Tables of iptables-nft, read and changed through nf_tables itself.

It needs no tool, also works on tables that iptables-nft refuses to list because somebody added rules of other kinds, and changes all
tables of a family in one transaction. Message layouts: linux/netfilter/nf_tables.h, nf_tables_compat.h, xt_comment.h.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, read_objects
from nodeagent.proxy.dataplane.driver.transaction import Message, Transaction
from nodeagent.proxy.dataplane.kube_proxy import kube_proxy_names
from nodeagent.proxy.dataplane.kube_proxy.leftovers import Finding
from nodeagent.proxy.dataplane.kube_proxy.rules import IptablesTable, Removal, TableRule, plan_removal
from nodeagent.wire.netlink.framing import attribute_map, attributes, reader, text_of
from nodeagent.wire.netlink.netfilter import nfproto
from nodeagent.wire.netlink.nf_tables import ruleset_objects as objects
from nodeagent.wire.netlink.uapi import nf_tables as uapi

T = TypeVar("T")
_POLICIES = {uapi.NF_DROP: "DROP", uapi.NF_ACCEPT: "ACCEPT"}


def parse_chain(reply: memoryview) -> tuple[str, str | None]:
    """Returns the name of the chain in a message, and the policy of a base chain (None: not a base chain)."""
    chain = objects.read_chain(reply)
    return chain.name, None if chain.hook is None else _POLICIES.get(chain.policy, "ACCEPT")


@reader
def parse_rule(reply: memoryview) -> TableRule:
    """Returns the rule in a message."""
    rule = objects.read_rule(reply)
    target, comment = "", rule.comment
    for kind, data in rule.expressions:
        if kind == "immediate":
            target = _verdict_chain(memoryview(data)) or target
        elif kind == "match":
            comment = _match_comment(memoryview(data)) or comment
    return TableRule(rule.chain, target, comment, handle=rule.handle)


def _verdict_chain(immediate: memoryview) -> str:
    """Returns the target of a jump or goto; empty for other verdicts and values."""
    found = attribute_map(immediate)
    for kind, data in attributes(found.get(uapi.NFTA_IMMEDIATE_DATA, memoryview(b""))):
        if kind == uapi.NFTA_DATA_VERDICT:
            return text_of(attribute_map(data).get(uapi.NFTA_VERDICT_CHAIN, memoryview(b"")))
    return ""


def _match_comment(match: memoryview) -> str:
    """Returns the text of ``-m comment``: struct xt_comment_info, 256 bytes up to the first NUL."""
    found = attribute_map(match)
    if text_of(found[uapi.NFTA_MATCH_NAME]) != "comment":
        return ""
    return bytes(found[uapi.NFTA_MATCH_INFO]).split(b"\0", 1)[0].decode(errors="replace")


def removal_messages(removal: Removal) -> Iterator[Message]:
    """Yields the messages that empty the chains, delete the rules in other chains, then delete the chains."""
    for chain in removal.chains:
        yield Message(uapi.NFT_MSG_DELRULE, 0, objects.pack_rules(removal.table, chain), f"rules of chain {chain}")
    for rule in removal.rules:
        body = objects.pack_rules(removal.table, rule.chain, rule.handle)
        yield Message(uapi.NFT_MSG_DELRULE, 0, body, f"rule {rule}")
    for chain in removal.chains:
        yield Message(uapi.NFT_MSG_DELCHAIN, 0, objects.pack_chain(removal.table, chain), f"chain {chain}")


class NftTables:
    """The tables nat, filter and mangle of iptables-nft (IPv4) or ip6tables-nft (IPv6)."""

    def __init__(self, socket: Ruleset, family: Family) -> None:
        self._socket = socket
        self._family = family

    @property
    def name(self) -> str:
        return "iptables-nft" if self._family is Family.IPV4 else "ip6tables-nft"

    def look(self) -> Finding:
        """Returns what the tables hold of kube-proxy. Raises NotPermitted, KernelUnclear."""
        removals = [plan_removal(self._read(table)) for table in kube_proxy_names.CHAINS]
        return Finding(
            tuple(line for removal in removals for line in removal.lines()),
            tuple(note for removal in removals for note in removal.notes()),
            lambda: self._remove(removals),
        )

    def _read(self, table: str) -> IptablesTable:
        chains = dict(self._dump(uapi.NFT_MSG_GETCHAIN, table, parse_chain))
        if not any(kube_proxy_names.is_chain(table, chain) for chain in chains):
            return IptablesTable(table, {}, ())
        return IptablesTable(table, chains, tuple(self._dump(uapi.NFT_MSG_GETRULE, table, parse_rule)))

    def _dump(self, kind: int, table: str, parse: Callable[[memoryview], T]) -> list[T]:
        """Returns the objects of one table; the kernel filters only some dumps by table."""

        def parse_own(data: memoryview) -> list[T]:
            return [parse(data)] if objects.table_of(data) == table else []

        try:
            found = read_objects(self._socket, kind, nfproto(self._family), parse_own, objects.pack_table(table))
        except FileNotFoundError:
            return []
        return [one for ones in found for one in ones]

    def _remove(self, removals: Iterable[Removal]) -> None:
        transaction = Transaction(self._family, {})
        for removal in removals:
            transaction.messages.extend(removal_messages(removal))
        self._socket.commit(transaction)
