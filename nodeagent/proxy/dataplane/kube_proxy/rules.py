"""Decides from the chains and rules of one iptables table what is removed, and what must stay (pure)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.proxy.dataplane.kube_proxy import kube_proxy_names


@dataclass(frozen=True, slots=True)
class TableRule:
    """A rule: the chain it is in, its target chain (empty: it has none), its comment.

    text: the rule behind ``-A CHAIN `` as iptables-save writes it; empty for one read from nf_tables.
    handle: its number in nf_tables; 0 for one of iptables-save.
    """

    chain: str
    target: str = ""
    comment: str = ""
    text: str = ""
    handle: int = 0

    def __str__(self) -> str:
        if self.text:
            return f"{self.chain} {self.text}"
        return f"{self.chain} -j {self.target}" + (f" ({self.comment})" if self.comment else "")


@dataclass(frozen=True, slots=True)
class IptablesTable:
    """One table (``nat``, ``filter``, ``mangle``). chains: policy of each, None for a chain that is not built in."""

    name: str
    chains: Mapping[str, str | None]
    rules: tuple[TableRule, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """A chain of kube-proxy that stays because another program's rule, or another chain that stays, leads to it."""

    chain: str
    because: str


@dataclass(frozen=True, slots=True)
class Removal:
    """What is removed from a table: chains with all their rules (name → number of rules), and rules of other chains.

    accepts_in_forward: forwarded packets pass FORWARD, whose policy is to drop, only if another rule accepts them.
    """

    table: str
    chains: Mapping[str, int]
    rules: tuple[TableRule, ...]
    kept: tuple[Kept, ...] = ()
    accepts_in_forward: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not self.chains and not self.rules

    def lines(self) -> Iterable[str]:
        """Yields one line for each thing that is removed."""
        for rule in self.rules:
            yield f"{self.table}: rule {rule}"
        for chain, count in self.chains.items():
            yield f"{self.table}: chain {chain} ({count} rule{'' if count == 1 else 's'})"

    def notes(self) -> Iterable[str]:
        """Yields one line for each thing that the user should know before."""
        for kept in self.kept:
            yield f"{self.table}: chain {kept.chain} stays: {kept.because}"
        if self.accepts_in_forward:
            yield (
                f"{self.table}: FORWARD drops by policy, and {kube_proxy_names.FORWARD} accepted traffic to services there: see"
                " that other rules accept traffic from and to pods"
            )


def plan_removal(table: IptablesTable) -> Removal:
    """Returns what to remove from a table.

    Rules of kube-proxy are those in its chains, and those in built-in chains that lead to its chains and carry its
    comment. A chain that a rule of another program leads to stays with all that it leads to: port mappings of some CNI
    plugins use KUBE-MARK-MASQ (`externalSetMarkChain`), whose mark has an effect only with KUBE-POSTROUTING.
    """
    ours = {name for name in table.chains if kube_proxy_names.is_chain(table.name, name)}
    jumps = [rule for rule in table.rules if _is_jump(table, rule, ours)]
    inside: dict[str, list[TableRule]] = {name: [] for name in ours}
    foreign = []
    for rule in table.rules:
        if rule.chain in ours:
            inside[rule.chain].append(rule)
        elif rule.target in ours and rule not in jumps:
            foreign.append(rule)
    kept = _kept(foreign, inside)
    gone = {name: len(inside[name]) for name in table.chains if name in ours and name not in kept}
    return Removal(
        table.name,
        gone,
        tuple(rule for rule in jumps if not (rule.target == kube_proxy_names.POSTROUTING and rule.target in kept)),
        tuple(Kept(chain, because) for chain, because in kept.items()),
        table.name == "filter" and kube_proxy_names.FORWARD in gone and table.chains.get("FORWARD") == "DROP",
    )


def _is_jump(table: IptablesTable, rule: TableRule, ours: set[str]) -> bool:
    built_in = table.chains.get(rule.chain) is not None
    return built_in and rule.target in ours and kube_proxy_names.is_jump_comment(rule.comment)


def _kept(foreign: Iterable[TableRule], inside: Mapping[str, Iterable[TableRule]]) -> dict[str, str]:
    """Returns the reason for each chain that stays, in the order in which they were found."""
    reasons: dict[str, str] = {}
    waiting = [(rule.target, f"the rule {rule} leads to it") for rule in foreign]
    while waiting:
        chain, because = waiting.pop(0)
        if chain in reasons or chain not in inside:
            continue
        reasons[chain] = because
        waiting += [(rule.target, f"{chain}, which stays, leads to it") for rule in inside[chain]]
        if chain == kube_proxy_names.MARK_MASQUERADE:
            waiting.append(
                (kube_proxy_names.POSTROUTING, f"it is where the mark of {chain}, which stays, has its effect")
            )
    return reasons
