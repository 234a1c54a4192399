"""What the table does to a packet, without a kernel: its rules, executed (pure).

Says what the rules do, not what they are meant to do: nothing here knows our chains or sets. `machine` executes the
expressions; here are hooks, chains and verdicts (net/netfilter/nf_tables_core.c, nf_nat_core.c).

`numgen random` is not drawn but explored: every number is followed, and each outcome knows its probability.
"""

from collections.abc import Collection, Iterator, Mapping

from nodeagent.dataplane.nft.expressions import Code, Rule, Verdict
from nodeagent.dataplane.nft.image import TableImage
from nodeagent.dataplane.nft.machine import ChoiceNeeded, Machine, RuleEnds, Sets
from nodeagent.dataplane.nft.packet import RST, TCP, Fate, Outcome, Packet
from nodeagent.dataplane.nft.program import Chain, Program
from nodeagent.dataplane.nft.schema import SetSpec
from nodeagent.dataplane.nft.spelling import Step
from nodeagent.model.addresses import pack_address

PREROUTING, INPUT, OUTPUT, POSTROUTING = 0, 1, 3, 4
"""enum nf_inet_hooks."""

MOST_JUMPS = 16
"""NFT_JUMP_STACK_SIZE."""

_Position = Iterator[tuple[int, Rule]]


class Interpreter:
    """A table of fixed content in front of a node.

    image: elements by set; what dynamic maps have learned is given in it like any others.
    local_addresses: canonical text; what `fib … type local` matches, the service interface's addresses included.
    """

    def __init__(
        self, program: Program, specs: Mapping[str, SetSpec], image: TableImage, local_addresses: Collection[str]
    ) -> None:
        self._chains = {chain.name: chain for chain in program.chains}
        self._sets = Sets(specs, image, program.verdicts, frozenset(map(pack_address, local_addresses)))

    def outcomes(self, packet: Packet) -> tuple[Outcome, ...]:
        """Everything that can become of the packet; the probabilities add up to 1.

        Raises KeyError for a chain or set that the program names and does not have, ValueError for more jumps inside
        each other than the kernel accepts.
        """
        found: list[Outcome] = []
        branches: list[tuple[int, ...]] = [()]
        while branches:
            choices = branches.pop()
            try:
                found.append(self._outcome(packet, choices))
            except ChoiceNeeded as needed:
                branches.extend((*choices, number) for number in reversed(range(needed.among)))
        return tuple(found)

    def _outcome(self, packet: Packet, choices: tuple[int, ...]) -> Outcome:
        machine = Machine(
            self._sets, packet, choices, packet.destination, packet.destination_port, priority=packet.priority
        )
        trace: list[Step] = []
        sent_here = packet.iif is None
        accepted = self._hook(OUTPUT if sent_here else PREROUTING, machine, trace)
        stays = machine.is_local(machine.destination)
        if accepted:
            # What the node sends to itself leaves by loopback, through postrouting; coming back it is translated already.
            accepted = self._hook(INPUT if stays and not sent_here else POSTROUTING, machine, trace)
        return Outcome(
            _fate(machine, accepted=accepted),
            machine.probability,
            machine.destination,
            machine.port,
            masqueraded=machine.masqueraded,
            reset=machine.rejected is not None and machine.rejected.tcp_reset,
            delivered_here=accepted and stays,
            priority=machine.priority,
            learned=machine.learned,
            trace=tuple(trace),
        )

    def _hook(self, number: int, machine: Machine, trace: list[Step]) -> bool:
        """Whether the packet gets past all chains of a hook, by priority; a translation ends it (nf_nat_inet_fn)."""
        hooked = [(c.hook.priority, c) for c in self._chains.values() if c.hook is not None and c.hook.number == number]
        for _, chain in sorted(hooked, key=lambda item: item[0]):
            if self._base_chain(chain, machine, trace) is not Code.ACCEPT:
                return False
            if machine.translated if number in (PREROUTING, OUTPUT) else machine.masqueraded:
                break
        return True

    def _base_chain(self, base: Chain, machine: Machine, trace: list[Step]) -> Code:
        """ACCEPT or DROP, as nft_do_chain; the policy is to accept."""
        chain, position = base, _rules(base)
        returns: list[tuple[Chain, _Position]] = []
        while True:
            verdict = _next_verdict(chain, position, machine, trace)
            if verdict is not None and verdict.code in (Code.ACCEPT, Code.DROP):
                return verdict.code
            if verdict is None or verdict.code is Code.RETURN:
                if not returns:
                    return Code.ACCEPT
                chain, position = returns.pop()
                continue
            if verdict.code is Code.JUMP:
                returns.append((chain, position))
                if len(returns) > MOST_JUMPS:
                    raise ValueError(f"more than {MOST_JUMPS} jumps inside each other, the last in chain {chain.name}")
            chain = self._chains[verdict.chain or ""]
            position = _rules(chain)


def _rules(chain: Chain) -> _Position:
    return iter(enumerate(chain.rules, 1))


def _next_verdict(chain: Chain, position: _Position, machine: Machine, trace: list[Step]) -> Verdict | None:
    """The next verdict that the rest of the chain gives; None at its end."""
    for number, rule in position:
        machine.words = []
        try:
            verdict = next(filter(None, map(machine.execute, rule)), None)
        except RuleEnds:
            trace.append(Step(chain.name, number, ", ".join(machine.words), applied=False))
            continue
        trace.append(Step(chain.name, number, ", ".join(machine.words)))
        if verdict is not None:
            return verdict
    return None


def _fate(machine: Machine, *, accepted: bool) -> Fate:
    if accepted:
        return Fate.TRANSLATED if machine.translated else Fate.UNTOUCHED
    if machine.rejected is None:
        return Fate.DROPPED
    # A reset answers TCP only, and never another reset (nf_reject_ip_tcphdr_get).
    resettable = machine.packet.protocol == TCP and not machine.packet.tcp_flags & RST
    return Fate.REFUSED if resettable or not machine.rejected.tcp_reset else Fate.DROPPED
