"""Passes a packet through a chain of another program (pure).

A rule that cannot be evaluated is skipped, and reported as a possible decision.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nodeagent.diagnosis.simulator.interpreter import DESTINATION_HOOKS, MOST_JUMPS, place_in_hook
from nodeagent.diagnosis.trace import xtables
from nodeagent.diagnosis.trace.matching import FieldAbsent, Unknown, look_up, matches, value_of
from nodeagent.diagnosis.trace.others import Json, OtherChain, OtherRule, OtherTable
from nodeagent.diagnosis.trace.traveller import Decision, Traveller
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program.chain import ChainType, HookNumber
from nodeagent.wire.netlink.nf_tables.expressions import Code
from nodeagent.wire.netlink.uapi.nfnetlink_conntrack import IPS_DST_NAT

_IGNORED = frozenset({"counter", "log", "set", "ct helper", "ct timeout", "ct expectation", "flow", "comment"})
_DECIDING = frozenset(
    {"drop", "reject", "dnat", "snat", "masquerade", "redirect", "accept", "notrack", "queue", "tproxy", "fwd", "xt"}
    | {"return", "vmap"}
)
_STOPPING = frozenset({"drop", "reject", "queue", "vmap", "tproxy"})
_OF_LEGACY = "-j "
"""Prefix of an unknown target of iptables."""
_CONDITIONS = frozenset({"limit", "quota", "connlimit", "ct count", "last"})
"""Statements that continue the rule or not, depending on earlier packets."""
_MATCH_OF_LEGACY = ("-m ", "--", "-f")
TRACKING = -200
"""The priority of connection tracking (NF_IP_PRI_CONNTRACK); a zone must be set before it."""
UNTRACKED = "not tracked, so nothing is translated"
"""The effect of a rule that leaves a packet untracked."""
RESET = "a reset"
"""The refusal that is not an ICMP error."""
REWRITTEN = "source is rewritten"
"""The effect of a rule that gives a connection another source."""
_Rest = Iterator[OtherRule]
LOOPBACK = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}
Ending = tuple[Code, str] | None
"""A verdict and, for a jump, its chain; None: the rule continues."""


def find_stopping_rule(
    traveller: Traveller, hooks: Sequence[HookNumber], others: Sequence[OtherTable]
) -> Decision | None:
    """Returns the rule that certainly stops a packet that is not translated in one of these hooks; None if it may get through."""
    for number in hooks:
        traveller.hook = number.name.lower()
        stops = [
            (place_in_hook(chain.hook), (table, chain))
            for table in others
            for chain in table.hooked(number)
            if chain.hook is not None and chain.hook.type is not ChainType.NAT
        ]
        for _, (table, chain) in sorted(stops, key=lambda stop: stop[0]):
            if pass_other_chain(table, chain, traveller) is not Code.ACCEPT:
                unclear = any(one.unclear for one in traveller.decisions)
                return None if unclear else next((one for one in reversed(traveller.decisions) if one.applied), None)
    return None


def pass_other_chain(table: OtherTable, base: OtherChain, traveller: Traveller) -> Code:
    """Returns ACCEPT or DROP for a packet that enters a base chain; a refusal is a DROP with `traveller.rejected` set."""
    traveller.early = _comes_before_tracking(base, traveller)
    chain, rest = base, iter(base.rules)
    returns: list[tuple[OtherChain, _Rest]] = []
    while True:
        found = _next_verdict(table, chain, rest, traveller, base)
        if found is None or found[0] is Code.RETURN:
            if returns:
                chain, rest = returns.pop()
                continue
            if not base.accepts:
                _note(traveller, table, base, None, "dropped by the chain's policy")
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


def _comes_before_tracking(base: OtherChain, traveller: Traveller) -> bool:
    hook = base.hook
    if hook is None or traveller.came_back:
        return False
    return hook.number in DESTINATION_HOOKS and hook.priority < TRACKING


def _next_verdict(table: OtherTable, chain: OtherChain, rest: _Rest, traveller: Traveller, base: OtherChain) -> Ending:
    for rule in rest:
        try:
            verdict = _Rule(table, chain, rule, traveller, base).perform()
        except FieldAbsent:
            continue
        except Unknown as unknown:
            if _decides(rule.expressions, table, _DECIDING):
                text = f"{rule.text} (cannot be evaluated: {unknown})"
                stops = _decides(rule.expressions, table, _STOPPING)
                traveller.decisions.append(
                    Decision(
                        traveller.hook,
                        table.name,
                        chain.name,
                        text,
                        handle=rule.handle,
                        applied=False,
                        unclear=True,
                        may_stop=stops,
                    )
                )
            continue
        if verdict is not None:
            return verdict
    return None


def _decides(
    expressions: tuple[Json, ...], table: OtherTable, kinds: frozenset[str], seen: frozenset[str] = frozenset()
) -> bool:
    """Returns whether a rule could do one of these things to a packet, also through the chains to which it jumps."""
    for item in expressions:
        kind, body = next(iter(item.items()))
        if kind in kinds or kind.startswith(_OF_LEGACY) or _is_stopping_target(kind, body):
            return True
        if kind in ("jump", "goto") and body["target"] not in seen:
            chain = table.chains.get(body["target"])
            rules = () if chain is None else chain.rules
            if any(_decides(rule.expressions, table, kinds, seen | {body["target"]}) for rule in rules):
                return True
    return False


def _is_stopping_target(kind: str, body: Json | None) -> bool:
    """Returns whether it is an extension's target that may stop the packet."""
    held = body or {}
    return kind == "xt" and held.get("type") == "target" and xtables.may_stop(held.get("name", ""))


def _note(
    traveller: Traveller,
    table: OtherTable,
    chain: OtherChain,
    rule: OtherRule | None,
    effect: str,
    *,
    translates: bool = False,
) -> None:
    text, handle = ("the policy of the chain", 0) if rule is None else (rule.text, rule.handle)
    traveller.decisions.append(
        Decision(
            traveller.hook,
            chain.table,
            chain.name,
            text,
            effect,
            handle=handle,
            translates=translates,
            program=table.program,
        )
    )


class _Rule:
    """One rule, and the effects of its statements."""

    def __init__(
        self, table: OtherTable, chain: OtherChain, rule: OtherRule, traveller: Traveller, base: OtherChain
    ) -> None:
        self._table, self._chain, self._rule, self._traveller = table, chain, rule, traveller
        self._base = base
        self._calls = iter(rule.calls)

    def perform(self) -> Ending:
        """Applies the rule. Returns its verdict, None to continue with the next rule. Raises Unknown, FieldAbsent.
        A part that cannot be evaluated matters only if all other matches hold."""
        unknown: Unknown | None = None
        for expression in self._rule.expressions:
            kind, body = next(iter(expression.items()))
            if kind in _CONDITIONS or kind.startswith(_MATCH_OF_LEGACY):
                unknown = unknown or Unknown(kind)
            elif kind == "match":
                try:
                    if not matches(body, self._traveller, self._table):
                        return None
                except Unknown as found:
                    unknown = unknown or found
            elif unknown is not None:
                raise unknown
            elif kind == "xt":
                verdict, goes_on = self._extension(body)
                if verdict is not None or not goes_on:
                    return verdict
            elif kind not in _IGNORED and (verdict := self._statement(kind, body)) is not None:
                return verdict
        if unknown is not None:
            raise unknown
        return None

    def _statement(self, kind: str, body: Any) -> Ending:
        if kind not in _STATEMENTS:
            raise Unknown(kind)
        return _STATEMENTS[kind](self, body)

    def accept(self, _: Any) -> Ending:
        """`accept`: the packet leaves this base chain and continues with the next one of the hook."""
        self._note_effect("accepted here")
        return Code.ACCEPT, ""

    def drop(self, _: Any) -> Ending:
        """`drop`: the packet is discarded without an answer."""
        self._note_effect("dropped")
        return Code.DROP, ""

    def follow(self, body: Any) -> Ending:
        """`vmap`: the map's verdict for the packet. Raises Unknown, FieldAbsent."""
        verdict = look_up(value_of(body["key"], self._traveller, self._table), body["data"], self._table, body["key"])
        return self._statement(*next(iter(verdict.items())))

    def reject(self, body: Any) -> Ending:
        """`reject`: the packet is discarded, and the sender gets a TCP reset or an ICMP error."""
        return self._reject(RESET if (body or {}).get("type") == "tcp reset" else "an ICMP error")

    def _note_effect(self, effect: str, *, translates: bool = False) -> None:
        _note(self._traveller, self._table, self._chain, self._rule, effect, translates=translates)

    def _reject(self, by: str) -> tuple[Code, str]:
        self._traveller.rejected = by
        self._note_effect(f"refused with {by}")
        return Code.DROP, ""

    def translate(self, body: Any) -> Ending:
        """`dnat`: the packet and its connection get another destination. Raises Unknown."""
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
        self._set_destination(address, port)
        return Code.ACCEPT, ""

    def redirect(self, body: Any) -> Ending:
        """`redirect`: the new destination is this node, at the first address of the input interface; at loopback for
        packets of the node (nf_nat_redirect.c). Raises Unknown."""
        if not self._traveller.iif:
            address = LOOPBACK[self._traveller.packet.family]
        elif not (address := self._traveller.address):
            raise Unknown(f"the address of {self._traveller.iif}")
        port = (body or {}).get("port")
        if isinstance(port, dict):
            port = value_of(port, self._traveller, self._table)
        if not isinstance(port, int | None):
            raise Unknown("where redirect leads")
        self._set_destination(address, port)
        return Code.ACCEPT, ""

    def _set_destination(self, address: str | None, port: int | None) -> None:
        machine = self._traveller.machine
        before = machine.destination, machine.port
        machine.destination, machine.port = address or machine.destination, port or machine.port
        machine.translated = True
        if before != (machine.destination, machine.port):
            machine.status |= IPS_DST_NAT
        self._note_effect(f"destination becomes {machine.destination} . {machine.port}", translates=True)

    def rewrite(self, body: Any) -> Ending:
        """`snat`, `masquerade`: the connection gets another source; it is recorded if the rule names a plain address."""
        address = (body or {}).get("addr")
        self._rewrite_source(address if isinstance(address, str) else "")
        return Code.ACCEPT, ""

    def _rewrite_source(self, address: str) -> None:
        self._traveller.machine.masqueraded = True
        self._traveller.new_source = address
        self._note_effect(REWRITTEN)

    def untrack(self, _: Any) -> Ending:
        """`notrack`: the packet belongs to no connection, so no NAT rule sees it; no effect if it was given a zone
        before."""
        if not self._traveller.came_back and not self._traveller.zoned:
            self._traveller.machine.untracked = True
            self._note_effect(UNTRACKED)
        return None

    def mangle(self, body: Any) -> Ending:
        """A statement that sets a field: only mark, conntrack zone and segment size are followed. Raises Unknown."""
        left: Json = body["key"] if isinstance(body["key"], dict) else {}
        if left.get("ct", {}).get("key") == "zone":
            if self._traveller.tracked or not left["ct"].get("iptables"):
                self._zone(value_of(body["value"], self._traveller, self._table), left["ct"].get("dir", ""))
            return None
        if left.get("tcp option", {}).get("name") == "maxseg":
            self._traveller.clamped = True
            return None
        if left.get("meta", {}).get("key") != "mark":
            return None
        value = value_of(body["value"], self._traveller, self._table)
        if not isinstance(value, int):
            raise Unknown("the mark it sets")
        self._mark(value)
        return None

    def _zone(self, number: Any, direction: str) -> None:
        """Sets the zone. The first one counts: a packet with a zone counts as tracked. nftables also gives a zone to an
        untracked packet and so tracks it (nft_ct_set_zone_eval), iptables does not (xt_ct_target)."""
        if not isinstance(number, int):
            raise Unknown("the zone it sets")
        hook, settled = self._base.hook, self._traveller.came_back or self._traveller.zoned
        if hook is not None and hook.priority < TRACKING and not settled:
            self._traveller.zone, self._traveller.zone_direction = number, direction
            self._traveller.zoned = True
            self._traveller.machine.untracked = False
            self._note_effect(f"tracked in zone {number}" + (f" ({direction})" if direction else ""))

    def _mark(self, value: int) -> None:
        if value != self._traveller.mark:
            self._traveller.mark = value
            self._traveller.rerouted = self._traveller.rerouted or self._base.reroutes
            self._note_effect(f"marked {value:#x}")

    def _extension(self, body: Json | None) -> tuple[Ending, bool]:
        """Returns an extension's verdict, and whether the rule continues. Raises Unknown."""
        call = next(self._calls, None)
        if call is None:
            raise Unknown(f"xt {(body or {}).get('name', '')}".strip())
        if (body or {}).get("type") == "match":
            return None, xtables.matches(call, self._traveller)
        ending = None
        self._traveller.clamped = self._traveller.clamped or call.name == "TCPMSS"
        match call.name:
            case "REJECT":
                by_reset = xtables.resets(call, self._traveller.packet.family)
                ending = self._reject(RESET if by_reset else "an error")
            case "DNAT":
                self._set_destination(*xtables.translation(call, self._traveller))
                ending = (Code.ACCEPT, "")
            case "REDIRECT":
                ending = self.redirect({"port": xtables.translation(call, self._traveller).port})
            case "MASQUERADE":
                ending = self.rewrite(None)
            case "SNAT":
                ending = self.rewrite({"addr": xtables.translation(call, self._traveller).address})
            case "MARK":
                self._mark(xtables.marked(call, self._traveller.mark))
            case "CT" | "NOTRACK":
                if xtables.untracks(call):
                    self.untrack(None)
                elif self._traveller.tracked and (zone := xtables.zone(call)) is not None:
                    self._zone(*zone)
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
    "redirect": _Rule.redirect,
    "masquerade": _Rule.rewrite,
    "snat": _Rule.rewrite,
    "notrack": _Rule.untrack,
    "mangle": _Rule.mangle,
    "continue": lambda _rule, _body: None,
}


def is_done(chain: OtherChain, traveller: Traveller) -> bool:
    """Returns whether the kernel skips a chain: a nat chain for a connection that is translated or untracked."""
    hook = chain.hook
    if hook is None or hook.type is not ChainType.NAT:
        return False
    machine = traveller.machine
    return traveller.machine.untracked or (
        machine.translated if hook.number in DESTINATION_HOOKS else machine.masqueraded
    )
