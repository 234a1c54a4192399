"""The tables of others, as libnftables lists them (libnftables-json(5)), and the kernel's bytes of what it cannot say."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeagent.dataplane.nft.chain import ChainType, Hook, HookNumber
from nodeagent.model.addresses import Family
from nodeagent.netlink.nf_tables.rule_reading import Extension

Json = dict[str, Any]
_HOOKS = {
    "prerouting": HookNumber.PREROUTING,
    "input": HookNumber.INPUT,
    "forward": HookNumber.FORWARD,
    "output": HookNumber.OUTPUT,
    "postrouting": HookNumber.POSTROUTING,
}
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
    """A chain. hook: None for one that is only jumped to."""

    table: str
    name: str
    rules: tuple[OtherRule, ...]
    hook: Hook | None = None
    accepts: bool = True


@dataclass(frozen=True, slots=True)
class OtherTable:
    """A table. name: with its family, as `inet firewalld`. sets: elements by set, maps as pairs."""

    name: str
    families: tuple[Family, ...]
    chains: Mapping[str, OtherChain] = field(default_factory=dict)
    sets: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def hooked(self, number: int) -> Iterable[OtherChain]:
        """Its base chains of a hook."""
        return (chain for chain in self.chains.values() if chain.hook is not None and chain.hook.number == number)


def read_table(
    name: str,
    listed: Iterable[Json],
    texts: Mapping[tuple[str, int], str],
    calls: Mapping[tuple[str, int], tuple[Extension, ...]],
) -> OtherTable:
    """A table out of the objects that are listed of it. texts, calls: by chain and handle of a rule."""
    rules: dict[str, list[OtherRule]] = {}
    headers: dict[str, Json] = {}
    sets: dict[str, tuple[Any, ...]] = {}
    for item in listed:
        kind, body = next(iter(item.items()))
        if kind == "chain":
            headers[body["name"]] = body
        elif kind in ("set", "map"):
            sets[body["name"]] = tuple(body.get("elem", ()))
        elif kind == "rule":
            place = (body["chain"], body.get("handle", 0))
            made = OtherRule(place[1], tuple(body.get("expr", ())), texts.get(place, ""), calls.get(place, ()))
            rules.setdefault(body["chain"], []).append(made)
    chains = {
        chain: OtherChain(
            name, chain, tuple(rules.get(chain, ())), _hook(header), accepts=header.get("policy", "accept") == "accept"
        )
        for chain, header in headers.items()
    }
    return OtherTable(name, _FAMILIES.get(name.partition(" ")[0], ()), chains, sets)


def _hook(header: Json) -> Hook | None:
    number = _HOOKS.get(header.get("hook", ""))
    if number is None:
        return None
    kind = ChainType.NAT if header.get("type") == "nat" else ChainType.FILTER
    return Hook(number, int(header.get("prio", 0)), kind)
