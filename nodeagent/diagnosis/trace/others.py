"""Tables of other programs, as libnftables lists them (libnftables-json(5)), with the kernel's bytes for what it cannot
show. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program.chain import ChainType, Hook, HookNumber
from nodeagent.wire.netlink.nf_tables.rule_reading import Extension

Json = dict[str, Any]
_HOOKS = {
    "prerouting": HookNumber.PREROUTING,
    "input": HookNumber.INPUT,
    "forward": HookNumber.FORWARD,
    "output": HookNumber.OUTPUT,
    "postrouting": HookNumber.POSTROUTING,
}
_PROGRAMS = {"ufw": ("ufw-", "ufw6-"), "Docker": ("DOCKER-USER",)}
"""Firewall → how its chains in tables of iptables begin."""
_FAMILIES = {"ip": (Family.IPV4,), "ip6": (Family.IPV6,), "inet": (Family.IPV4, Family.IPV6)}


@dataclass(frozen=True, slots=True)
class OtherRule:
    """A rule. text: as `nft list` writes it. calls: its extensions of iptables, in order."""

    handle: int
    expressions: tuple[Json, ...]
    text: str = ""
    calls: tuple[Extension, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherChain:
    """A chain. hook: None if it is only jumped to. reroutes: a new mark makes the kernel route the node's own packets
    again."""

    table: str
    name: str
    rules: tuple[OtherRule, ...]
    hook: Hook | None = None
    accepts: bool = True
    reroutes: bool = False


@dataclass(frozen=True, slots=True)
class OtherTable:
    """A table. name: with its family, as `inet firewalld`. sets: elements by set, maps as pairs.
    made: higher for a later one; 0 for tables of iptables-legacy, which are assumed to be older than all of nft."""

    name: str
    families: tuple[Family, ...]
    chains: Mapping[str, OtherChain] = field(default_factory=dict)
    sets: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    made: int = 0

    @property
    def program(self) -> str:
        """The firewall that writes this table and opens it by a command of its own; empty for all others."""
        names = (name for chain in self.chains for name, prefix in _PROGRAMS.items() if chain.startswith(prefix))
        return "firewalld" if self.name == "inet firewalld" else next(names, "")

    def hooked(self, number: int) -> Iterable[OtherChain]:
        """Returns its base chains of a hook, the newest first: among equal priorities it is called first
        (nf_hook_entries_grow)."""
        chains = reversed(tuple(self.chains.values()))
        return (chain for chain in chains if chain.hook is not None and chain.hook.number == number)


def read_table(
    name: str,
    listed: Iterable[Json],
    texts: Mapping[tuple[str, int], str],
    calls: Mapping[tuple[str, int], tuple[Extension, ...]],
) -> OtherTable:
    """Returns a table made from its listed objects. texts, calls: by chain and handle of a rule."""
    rules: dict[str, list[OtherRule]] = {}
    headers: dict[str, Json] = {}
    sets: dict[str, tuple[Any, ...]] = {}
    made = 0
    for item in listed:
        kind, body = next(iter(item.items()))
        if kind == "table":
            made = int(body.get("handle", 0))
        elif kind == "chain":
            headers[body["name"]] = body
        elif kind in ("set", "map"):
            sets[body["name"]] = tuple(body.get("elem", ()))
        elif kind == "rule":
            place = (body["chain"], body.get("handle", 0))
            rule = OtherRule(place[1], tuple(body.get("expr", ())), texts.get(place, ""), calls.get(place, ()))
            rules.setdefault(body["chain"], []).append(rule)
    chains = {
        chain: OtherChain(
            name,
            chain,
            tuple(rules.get(chain, ())),
            _hook(header),
            accepts=header.get("policy", "accept") == "accept",
            reroutes=header.get("type") == "route",
        )
        for chain, header in headers.items()
    }
    return OtherTable(name, _FAMILIES.get(name.partition(" ")[0], ()), chains, sets, made)


def _hook(header: Json) -> Hook | None:
    number = _HOOKS.get(header.get("hook", ""))
    if number is None:
        return None
    kind = ChainType.NAT if header.get("type") == "nat" else ChainType.FILTER
    return Hook(number, int(header.get("prio", 0)), kind)
