"""A packet through a chain of somebody else's (pure).

What cannot be evaluated is passed over, and told as a decision that could have been.
"""

from collections.abc import Callable, Iterator
from typing import Any

from nodeagent.dataplane.nft.chain import ChainType
from nodeagent.dataplane.nft.interpreter import DESTINATION_HOOKS, MOST_JUMPS
from nodeagent.netlink.nf_tables.expressions import Code
from nodeagent.netlink.uapi.nfnetlink_conntrack import IPS_DST_NAT
from nodeagent.trace import xtables
from nodeagent.trace.matching import Absent, Unknown, look_up, matches, value_of
from nodeagent.trace.others import Json, OtherChain, OtherRule, OtherTable
from nodeagent.trace.traveller import Decision, Traveller

_IGNORED = frozenset({"counter", "log", "set", "ct helper", "ct timeout", "ct expectation", "flow", "last", "comment"})
_DECIDING = frozenset(
    {"drop", "reject", "dnat", "snat", "masquerade", "redirect", "accept", "notrack", "queue", "tproxy", "fwd", "xt"}
)
_Rest = Iterator[OtherRule]
Ending = tuple[Code, str] | None
"""A verdict and, of a jump, its chain; None: the rule goes on."""


def pass_other_chain(table: OtherTable, base: OtherChain, traveller: Traveller) -> Code:
    """ACCEPT or DROP for a packet that enters a base chain; a refusal is a DROP with `traveller.rejected` set."""
    chain, rest = base, iter(base.rules)
    returns: list[tuple[OtherChain, _Rest]] = []
    while True:
        found = _next_verdict(table, chain, rest, traveller)
        if found is None or found[0] is Code.RETURN:
            if returns:
                chain, rest = returns.pop()
                continue
            if not base.accepts:
                _note(traveller, base, None, "dropped by the chain's policy")
            return Code.ACCEPT if base.accepts else Code.DROP
        code, target = found
        if code in (Code.ACCEPT, Code.DROP):
            return code
        if code is Code.JUMP:
            returns.append((chain, rest))
        if len(returns) > MOST_JUMPS or target not in table.chains:
            return Code.ACCEPT
        chain = table.chains[target]
        rest = iter(chain.rules)


def _next_verdict(table: OtherTable, chain: OtherChain, rest: _Rest, traveller: Traveller) -> Ending:
    for rule in rest:
        try:
            verdict = _Rule(table, chain, rule, traveller).perform()
        except Absent:
            continue
        except Unknown as unknown:
            if any(next(iter(item)) in _DECIDING for item in rule.expressions):
                text = f"{rule.text} (cannot be evaluated: {unknown})"
                traveller.decisions.append(
                    Decision(traveller.hook, table.name, chain.name, text, "", 0, rule.handle, False, True)
                )
            continue
        if verdict is not None:
            return verdict
    return None


def _note(traveller: Traveller, chain: OtherChain, rule: OtherRule | None, effect: str) -> None:
    text = "the policy of the chain" if rule is None else rule.text
    traveller.decisions.append(
        Decision(traveller.hook, chain.table, chain.name, text, effect, handle=0 if rule is None else rule.handle)
    )


class _Rule:
    """One rule, and what its statements do."""

    def __init__(self, table: OtherTable, chain: OtherChain, rule: OtherRule, traveller: Traveller) -> None:
        self._table, self._chain, self._rule, self._traveller = table, chain, rule, traveller
        self._calls = iter(rule.calls)

    def perform(self) -> Ending:
        """Its verdict, None to go on with the next rule. Raises Unknown, Absent."""
        for expression in self._rule.expressions:
            kind, body = next(iter(expression.items()))
            if kind == "match":
                if not matches(body, self._traveller, self._table):
                    return None
            elif kind == "xt":
                verdict, goes_on = self._extension(body)
                if verdict is not None or not goes_on:
                    return verdict
            elif kind not in _IGNORED and (verdict := self._statement(kind, body)) is not None:
                return verdict
        return None

    def _statement(self, kind: str, body: Any) -> Ending:
        if kind not in _STATEMENTS:
            raise Unknown(kind)
        return _STATEMENTS[kind](self, body)

    def accept(self, _: Any) -> Ending:
        """Ends this base chain; the next one is asked."""
        self._done("accepted here")
        return Code.ACCEPT, ""

    def drop(self, _: Any) -> Ending:
        """The end."""
        self._done("dropped")
        return Code.DROP, ""

    def follow(self, body: Any) -> Ending:
        """The verdict that a map has."""
        verdict = look_up(value_of(body["key"], self._traveller, self._table), body["data"], self._table, body["key"])
        return self._statement(*next(iter(verdict.items())))

    def reject(self, body: Any) -> Ending:
        """The end, and the sender is told."""
        return self._reject("a reset" if (body or {}).get("type") == "tcp reset" else "an ICMP error")

    def _done(self, effect: str) -> None:
        _note(self._traveller, self._chain, self._rule, effect)

    def _reject(self, by: str) -> tuple[Code, str]:
        self._traveller.rejected = by
        self._done(f"refused with {by}")
        return Code.DROP, ""

    def translate(self, body: Any) -> Ending:
        """A new destination."""
        body = body or {}
        address, port = body.get("addr"), body.get("port")
        if isinstance(address, dict):
            found = value_of(address, self._traveller, self._table)
            if isinstance(found, dict) and "concat" in found:
                found, port = found["concat"]
            address = found
        if isinstance(port, dict):
            port = value_of(port, self._traveller, self._table)
        if not isinstance(address, str | None) or not isinstance(port, int | None):
            raise Unknown("where dnat leads")
        self._lead(address, port)
        return Code.ACCEPT, ""

    def _lead(self, address: str | None, port: int | None) -> None:
        machine = self._traveller.machine
        before = machine.destination, machine.port
        machine.destination, machine.port = address or machine.destination, port or machine.port
        machine.translated = True
        if before != (machine.destination, machine.port):
            machine.status |= IPS_DST_NAT
        self._done(f"destination becomes {machine.destination} . {machine.port}")

    def rewrite(self, _: Any) -> Ending:
        """A new source."""
        self._traveller.machine.masqueraded = True
        self._done("source is rewritten")
        return Code.ACCEPT, ""

    def untrack(self, _: Any) -> Ending:
        """From here on no translation of others or ours sees the packet."""
        self._traveller.machine.untracked = True
        self._done("not tracked, so nothing is translated")
        return None

    def mangle(self, body: Any) -> Ending:
        """A field of the packet is set; only its mark matters to others."""
        key = body["key"].get("meta", {}).get("key") if isinstance(body["key"], dict) else None
        if key != "mark":
            return None
        value = body["value"]
        if not isinstance(value, int):
            raise Unknown("the mark it sets")
        self._traveller.mark = value
        return None

    def _extension(self, body: Json | None) -> tuple[Ending, bool]:
        """An extension's verdict, and whether the rule goes on. Raises Unknown."""
        call = next(self._calls, None)
        if call is None:
            raise Unknown(f"xt {(body or {}).get('name', '')}".strip())
        if (body or {}).get("type") == "match":
            return None, xtables.matches(call, self._traveller)
        ending = None
        match call.name:
            case "REJECT":
                ending = self._reject("an error")
            case "DNAT" | "REDIRECT":
                self._lead(*xtables.translation(call, self._traveller))
                ending = (Code.ACCEPT, "")
            case "MASQUERADE" | "SNAT":
                ending = self.rewrite(None)
            case "MARK":
                self._traveller.mark = xtables.marked(call, self._traveller.mark)
            case "CT" | "NOTRACK":
                if xtables.untracks(call):
                    self.untrack(None)
            case name if name not in xtables.PASSING:
                raise Unknown(f"xt target {name}")
        return ending, ending is None


_STATEMENTS: dict[str, Callable[[_Rule, Any], Ending]] = {
    "accept": _Rule.accept,
    "drop": _Rule.drop,
    "return": lambda _rule, _body: (Code.RETURN, ""),
    "jump": lambda _rule, body: (Code.JUMP, body["target"]),
    "goto": lambda _rule, body: (Code.GOTO, body["target"]),
    "vmap": _Rule.follow,
    "reject": _Rule.reject,
    "dnat": _Rule.translate,
    "redirect": _Rule.translate,
    "masquerade": _Rule.rewrite,
    "snat": _Rule.rewrite,
    "notrack": _Rule.untrack,
    "mangle": _Rule.mangle,
    "continue": lambda _rule, _body: None,
}


def is_done(chain: OtherChain, traveller: Traveller) -> bool:
    """Whether the kernel does not ask a chain: one of nat for a connection that is translated or not tracked."""
    hook = chain.hook
    if hook is None or hook.type is not ChainType.NAT:
        return False
    machine = traveller.machine
    return traveller.machine.untracked or (
        machine.translated if hook.number in DESTINATION_HOOKS else machine.masqueraded
    )
