"""Runs `nodeagent` with one part of its rules taken out: `packet_parts.py PART run --once …`, for new_connection.py.

What is left leads each packet of that bench on as before, to an endpoint or past all Services, and needs no other sense. The parts do not add up:
what one has read, the next one finds in the processor's caches.
"""

import runpy
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import ip_address

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import program, schema
from nodeagent.proxy.dataplane.program.chain import Chain, Program, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass
from nodeagent.proxy.dataplane.program.loads import Loader
from nodeagent.proxy.dataplane.program.source_rewriting import NOT_FROM_PODS
from nodeagent.wire.netlink.nf_tables import expressions as nft

ENDPOINT = {Family.IPV4: "10.128.0.5", Family.IPV6: "fd00:128::5"}
SERVICES = {Family.IPV4: "10.97.0.0", Family.IPV6: "fd00:97::"}
PICK = "pick-10"
"""The chain of the bench's Services, unless it was given another number of endpoints: then nothing is taken out."""
FIRST, LAST = ("prerouting", "output"), ("prerouting-unclaimed", "output-unclaimed")
_LOADS = nft.Payload | nft.Meta | nft.Mask | nft.Ct

Change = Callable[[Family, Chain], Chain | None]
"""Returns a chain without the part; None: without the chain."""


def _of(names: Iterable[str], change: Callable[[Family, tuple[nft.Rule, ...]], Iterable[nft.Rule]]) -> Change:
    """Changes the rules of these chains."""
    return lambda family, chain: (
        replace(chain, rules=tuple(change(family, chain.rules))) if chain.name in names else chain
    )


def _picking(change: Callable[[Family, nft.Rule], nft.Rule]) -> Change:
    """Changes the rule that translates, in each chain that picks."""
    return lambda family, chain: (
        replace(chain, rules=(change(family, chain.rules[0]), *chain.rules[1:]))
        if chain.name.startswith("pick-")
        else chain
    )


def _without_lookup(name: str, rules: Iterable[nft.Rule]) -> list[nft.Rule]:
    """Takes a lookup out of each rule, with what loads its key."""
    left = []
    for rule in rules:
        at = next((n for n, e in enumerate(rule) if isinstance(e, nft.Lookup) and e.set == name), None)
        start = at
        while start and isinstance(rule[start - 1], _LOADS):
            start -= 1
        left.append(rule if at is None else (*rule[:start], *rule[at + 1 :]))
    return left


def _dispatching(rules: tuple[nft.Rule, ...]) -> int:
    """Returns the index of the rule that leads frontends to their chains."""
    return next(n for n, rule in enumerate(rules) if any(isinstance(e, nft.LookupVerdict) for e in rule))


def _range_in_place_of_lookups(family: Family, rules: tuple[nft.Rule, ...], picks: str) -> tuple[nft.Rule, ...]:
    """Replaces the rule that dispatches by a comparison with the range of the bench's Services."""
    at, start = _dispatching(rules), ip_address(SERVICES[family]).packed[: 2 if family is Family.IPV4 else 12]
    load = replace(Loader(family).destination(0), length=len(start))
    return (*rules[:at], (load, nft.Cmp(0, start), nft.Verdict(nft.Code.GOTO, picks)), *rules[at + 1 :])


def _class_to_chain(rules: tuple[nft.Rule, ...], picks: str) -> tuple[nft.Rule, ...]:
    """Replaces the scratch field and the verdict map behind the first lookup by the chain of the bench's Services."""
    at = _dispatching(rules)
    end = next(n for n, e in enumerate(rules[at]) if isinstance(e, nft.MetaSet))
    return (*rules[:at], (*rules[at][:end], nft.Verdict(nft.Code.GOTO, picks)), *rules[at + 1 :])


def _endpoint(family: Family, rule: nft.Rule) -> nft.Rule:
    address = ip_address(ENDPOINT[family]).packed
    clear = tuple(e for n, e in enumerate(rule) if n < 2)
    return (
        *clear,
        nft.Immediate(0, address),
        nft.Immediate(len(address) // 4, (8080).to_bytes(2)),
        rule[-1],
    )


def _slot(family: Family, rule: nft.Rule) -> nft.Rule:
    del family
    return tuple(nft.Immediate(e.reg, nft.native_u32(3)) if isinstance(e, nft.Random) else e for e in rule)


PARTS: dict[str, Change] = {
    "frontend and class": _of(FIRST, lambda family, rules: _range_in_place_of_lookups(family, rules, PICK)),
    "refusal, node ports": _of(FIRST, lambda _, rules: rules[: _dispatching(rules) + 1]),
    "class to chain": _of(FIRST, lambda _, rules: _class_to_chain(rules, PICK)),
    "drawing the slot": _picking(_slot),
    "slot and endpoint": _picking(_endpoint),
    "clearing the field": _picking(lambda _, rule: rule[2:]),
    "whole look at sources": _of(("postrouting",), lambda *_: ()),
    "only ClusterIPs?": _of(("postrouting",), lambda _, rules: _without_lookup(schema.CLUSTER_IP_ONLY_BLOCKS, rules)),
    "hairpin?": _of(("postrouting",), lambda _, rules: _without_lookup(schema.HAIRPIN, rules)),
    "keeping the node's": _of((NOT_FROM_PODS,), lambda _, rules: rules[1:]),
    "dropping unclaimed": lambda _, chain: None if chain.name in LAST else chain,
}
"""By name."""


def without(part: str, made: Program) -> Program:
    """Returns the program without the part; unchanged while there are no Services of ten endpoints."""
    if not any(chain.name == PICK for chain in made.chains):
        return made
    changed = (PARTS[part](made.family, chain) for chain in made.chains)
    return replace(made, chains=tuple(chain for chain in changed if chain is not None))


def take_out(part: str) -> None:
    """Lets this process build programs without the part."""
    whole = program.build_program

    def build(
        family: Family, options: ProgramOptions, classes: Iterable[PickClass], timeouts: Iterable[int]
    ) -> Program:
        return without(part, whole(family, options, classes, timeouts))

    program.build_program = build


if __name__ == "__main__":
    take_out(sys.argv.pop(1))
    runpy.run_module("nodeagent", run_name="__main__", alter_sys=True)
