"""Executes the rules of the table on a packet, without a kernel (pure).

It shows what the rules do, not what they are meant to do: nothing here knows our chains or sets. `machine` executes the
expressions; here are hooks, chains and verdicts (net/netfilter/nf_tables_core.c, nf_nat_core.c).

`numgen random` is explored, not drawn: every number is followed, and each outcome has its probability.
"""

from collections.abc import Collection, Iterator, Mapping

from nodeagent.diagnosis.simulator.machine import ChoiceNeeded, Machine, RuleEnds, RuleUnclear, Sets
from nodeagent.diagnosis.simulator.packet import RST, TCP, Fate, Outcome, Packet
from nodeagent.diagnosis.simulator.spelling import Step
from nodeagent.model.addresses import pack_address
from nodeagent.proxy.dataplane.image.image import TableImage
from nodeagent.proxy.dataplane.program.chain import Chain, ChainType, Hook, HookNumber, Program
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.nf_tables.expressions import Code, Rule, Verdict

MOST_JUMPS = 16
"""NFT_JUMP_STACK_SIZE."""

DESTINATION_HOOKS = frozenset({HookNumber.PREROUTING, HookNumber.OUTPUT})
_NAT_PRIORITY = {True: -100, False: 100}
"""NF_IP_PRI_NAT_DST and NF_IP_PRI_NAT_SRC (include/uapi/linux/netfilter_ipv4.h)."""
_Position = Iterator[tuple[int, Rule]]


class Interpreter:
    """A table with fixed content on a node.

    image: elements by set, also those of dynamic maps. local_addresses: canonical text; what `fib … type local`
    matches, with the service interface's addresses. sockets: (address, protocol, port) bound on the node. bridges: the
    hosts behind the ports of each bridge. br_netfilter passes their packets to each other to the rules. at_interface: the
    node's addresses by interface, for `fib … . oif type local`; the interface to all that is behind no bridge is called "".
    """

    def __init__(
        self,
        program: Program,
        specs: Mapping[str, SetSpec],
        image: TableImage,
        local_addresses: Collection[str],
        sockets: Collection[tuple[str, int, int]] = (),
        bridges: Mapping[str, Collection[str]] | None = None,
        at_interface: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._bridge_of = {host: bridge for bridge, hosts in (bridges or {}).items() for host in hosts}
        self._chains = {chain.name: chain for chain in program.chains}
        bound = frozenset((pack_address(address), protocol, port) for address, protocol, port in sockets)
        self._sets = Sets(specs, image, program.verdicts, frozenset(local_addresses), bound, at_interface or {})

    def outcomes(self, packet: Packet) -> tuple[Outcome, ...]:
        """Returns all possible outcomes for the packet; the probabilities add up to 1.

        Raises KeyError if the program names a chain or set that it lacks, ValueError for more nested jumps than the
        kernel accepts.
        """
        found: list[Outcome] = []
        branches: list[tuple[int, ...]] = [()]
        while branches:
            choices = branches.pop()
            try:
                found.append(self._follow(packet, choices))
            except ChoiceNeeded as needed:
                branches.extend((*choices, number) for number in reversed(range(needed.among)))
        return tuple(found)

    def _follow(self, packet: Packet, choices: tuple[int, ...]) -> Outcome:
        machine = self.machine(packet, choices)
        trace: list[Step] = []
        sent_here = packet.iif is None
        accepted = self._hook(HookNumber.OUTPUT if sent_here else HookNumber.PREROUTING, machine, trace)
        stays = machine.is_local(machine.destination)
        if accepted:
            # Packets of the node to itself leave through loopback and postrouting; when they come in they are translated already.
            last = HookNumber.INPUT if stays and not sent_here else HookNumber.POSTROUTING
            if last is HookNumber.POSTROUTING:
                machine.oif = self._bridge_of.get(machine.destination, "")
                # Between two ports of a bridge, postrouting sees no input interface (br_nf_post_routing).
                machine.iif = "" if machine.iif == machine.oif else machine.iif
            accepted = self._hook(last, machine, trace)
        return Outcome(
            fate_of(machine, accepted=accepted),
            machine.probability,
            machine.destination,
            machine.port,
            masqueraded=machine.masqueraded,
            untracked=machine.untracked,
            reset=machine.rejected is not None and machine.rejected.tcp_reset,
            delivered_here=accepted and stays,
            priority=machine.priority,
            learned=machine.learned,
            lookups=machine.lookups,
            trace=tuple(trace),
        )

    def _hook(self, number: int, machine: Machine, trace: list[Step]) -> bool:
        """Returns whether the packet passes all chains of a hook, by priority.

        A translation ends the nat chains (nf_nat_inet_fn). The kernel enters them together at one place, and never with
        an untracked packet.
        """
        for chain in self.hooked(number):
            done = machine.translated if number in DESTINATION_HOOKS else machine.masqueraded
            if _type_of(chain) is ChainType.NAT and (done or machine.untracked):
                continue
            if self.pass_chain(chain, machine, trace) is not Code.ACCEPT:
                return False
        return True

    def hooked(self, number: int) -> list[Chain]:
        """Returns the base chains of a hook, in the kernel's order."""
        chains = (chain for chain in self._chains.values() if chain.hook is not None and chain.hook.number == number)
        return sorted(chains, key=lambda chain: place_in_hook(hook_of(chain)))

    def machine(self, packet: Packet, choices: tuple[int, ...] = ()) -> Machine:
        """Returns a packet's state before its first rule. choices: the random numbers it gets, in order."""
        place = packet.destination, packet.destination_port
        return Machine(self._sets, packet, choices, *place, packet.priority, iif=packet.iif or "")

    def pass_chain(self, base: Chain, machine: Machine, trace: list[Step]) -> Code:
        """Returns ACCEPT or DROP, like nft_do_chain; the policy is accept."""
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
                    raise ValueError(f"more than {MOST_JUMPS} nested jumps, the last in chain {chain.name}")
            chain = self._chains[verdict.chain or ""]
            position = _rules(chain)


def _type_of(chain: Chain) -> ChainType | None:
    return None if chain.hook is None else chain.hook.type


def hook_of(chain: Chain) -> Hook:
    """Returns where a base chain is attached."""
    assert chain.hook is not None, "only base chains have a place"
    return chain.hook


def place_in_hook(hook: Hook) -> tuple[int, int]:
    """Returns a base chain's position in its hook: its own priority for filter chains; for nat chains, the one that all nat chains share."""
    if hook.type is ChainType.NAT:
        return _NAT_PRIORITY[hook.number in DESTINATION_HOOKS], hook.priority
    return hook.priority, 0


def _rules(chain: Chain) -> _Position:
    return iter(enumerate(chain.rules, 1))


def _next_verdict(chain: Chain, position: _Position, machine: Machine, trace: list[Step]) -> Verdict | None:
    """Returns the next verdict in the rest of the chain; None at its end."""
    for number, rule in position:
        machine.words = []
        try:
            verdict = next(filter(None, map(machine.execute, rule)), None)
        except RuleEnds as ended:
            unclear = isinstance(ended, RuleUnclear)
            trace.append(Step(chain.name, number, ", ".join(machine.words), applied=False, unclear=unclear))
            continue
        trace.append(Step(chain.name, number, ", ".join(machine.words)))
        if verdict is not None:
            return verdict
    return None


def fate_of(machine: Machine, *, accepted: bool) -> Fate:
    """Returns the fate of a packet that all chains accepted, or that one did not."""
    if accepted:
        return Fate.TRANSLATED if machine.translated else Fate.UNTOUCHED
    if machine.rejected is None:
        return Fate.DROPPED
    # A reset answers TCP only, and never another reset (nf_reject_ip_tcphdr_get).
    resettable = machine.packet.protocol == TCP and not machine.packet.tcp_flags & RST
    return Fate.REFUSED if resettable or not machine.rejected.tcp_reset else Fate.DROPPED
