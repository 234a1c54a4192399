"""The constant program: base chains, the chains they lead to, and when a new one is needed.

The rules know no service. They depend on a few options and, for the small pick and learn chains, on which endpoint
counts and affinity timeouts are in use. docs/dataplane.md describes the path of a packet through them.

What every rule may rely on: nat chains see only the first packet of a connection (nf_nat_core.c), so established
connections never pass there. skb->priority is the scratch field between rules; it is cleared with the translation, or
with affinity just behind it. A lookup that misses ends its rule, which is why a scratch value is set and used within one rule.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Chain, ChainType, Hook, HookNumber, Program, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import END_CHAINS, REFUSE_CHAIN, SCOPE_CHAINS, SPECIAL_CHAINS, PickClass
from nodeagent.proxy.dataplane.program.learning import JUST_TRANSLATED, learn_chain, learn_chain_name, learning_chains
from nodeagent.proxy.dataplane.program.loads import Loader, follow
from nodeagent.proxy.dataplane.program.names_here import answered_in_connections, names_chains
from nodeagent.proxy.dataplane.program.offloading import offloading_chains
from nodeagent.proxy.dataplane.program.picking import TO_NODE_CHAIN, pick_chain, special_chains
from nodeagent.proxy.dataplane.program.source_rewriting import source_chains, source_rules
from nodeagent.wire.netlink.nf_tables import expressions as nft

BEFORE_DSTNAT = -105
"""Before dstnat (-100), where other programs translate. A ClusterIP is a local address, so rules for everything that is
addressed to the node (`--dst-type LOCAL`: CNI portmap, Docker) would take it first."""
BEHIND_DSTNAT = -99
"""Behind every nat chain of the hook, whatever its priority among nat chains."""
AFTER_ALL_DSTNAT = 1000
"""The last one among nat chains: it sees what no program has translated."""
BEFORE_SRCNAT = 95
_ICMP = {Family.IPV4: 1, Family.IPV6: 58}
_ICMPV6_ECHO_REQUEST = 128


def build_program(
    family: Family, options: ProgramOptions, classes: Iterable[PickClass], timeouts: Iterable[int]
) -> Program:
    """Returns the program with a chain for each class and each affinity timeout (seconds) given."""
    classes = sorted(set(classes))
    timeouts = sorted(set(timeouts))
    chains = (
        *special_chains(family, options),
        *(pick_chain(family, pick) for pick in classes),
        *timeout_chains(family, options, timeouts),
        *(affinity_chains(family) if timeouts else ()),
        *source_chains(family, options),
        *(names_chains(family) if options.names else ()),
        *(offloading_chains(family) if options.flowtable else ()),
        *_base_chains(family, options),
    )
    flowtable = schema.FLOWTABLE if options.flowtable else ""
    return Program(family, chains, verdict_elements(classes, timeouts), flowtable)


def timeout_chains(family: Family, options: ProgramOptions, timeouts: Iterable[int]) -> tuple[Chain, ...]:
    """Returns the two chains that learn for each affinity timeout: one for addresses, one for node ports."""
    return tuple(
        learn_chain(family, options, seconds, node_port=node_port)
        for seconds in timeouts
        for node_port in (False, True)
    )


def affinity_chains(family: Family) -> tuple[Chain, ...]:
    """Returns the chains that lead to these, needed only if there is an affinity timeout: a hook costs time for every packet. A chain
    comes after those that its rules lead to."""
    return (
        *learning_chains(family),
        Chain("prerouting-translated", (JUST_TRANSLATED,), _behind_translation(HookNumber.PREROUTING)),
        Chain("output-translated", (JUST_TRANSLATED,), _behind_translation(HookNumber.OUTPUT)),
    )


def _behind_translation(at: HookNumber) -> Hook:
    return Hook(at, BEHIND_DSTNAT, ChainType.FILTER)


def verdict_elements(classes: Iterable[PickClass], timeouts: Iterable[int]) -> dict[str, dict[bytes, str]]:
    """Returns the elements of the verdict maps, as map name → key → chain (always by goto).

    A chain that a map leads to cannot use the same map again: to the kernel that is a loop (EMLINK,
    nf_tables_api.c nft_chain_validate). Hence a map for each step of a look at the source.
    """
    picks = {nft.native_u32(pick.number): pick.chain for pick in classes}
    seconds = list(timeouts)
    return {
        schema.DISPATCH: {**_keyed(SPECIAL_CHAINS), **picks},
        schema.DISPATCH_ALLOWED: {**_keyed(END_CHAINS), **_keyed(SCOPE_CHAINS), **picks},
        schema.DISPATCH_SCOPED: {**_keyed(END_CHAINS), **picks},
        schema.LEARN: {nft.native_u32(value): learn_chain_name(value, node_port=False) for value in seconds},
        schema.NODEPORT_LEARN: {nft.native_u32(value): learn_chain_name(value, node_port=True) for value in seconds},
    }


def leading_elements(classes: Iterable[PickClass], timeouts: Iterable[int]) -> dict[str, dict[bytes, str]]:
    """Returns the elements of the verdict maps that exist only for these classes and timeouts."""
    always = verdict_elements((), ())
    return {
        name: {key: chain for key, chain in elements.items() if key not in always[name]}
        for name, elements in verdict_elements(classes, timeouts).items()
    }


def behind(program: Program) -> Program:
    """Returns the same program, entered at each hook just after a table with the program itself: it sees what that one leaves."""
    return replace(program, chains=tuple(map(_one_later, program.chains)))


def _one_later(chain: Chain) -> Chain:
    hook = chain.hook
    return chain if hook is None else replace(chain, hook=replace(hook, priority=hook.priority + 1))


def _keyed(chains: Mapping[int, str]) -> dict[bytes, str]:
    return {nft.native_u32(number): chain for number, chain in chains.items()}


def _base_chains(family: Family, options: ProgramOptions) -> tuple[Chain, ...]:
    """Returns the base chains of every program, in the order in which a connection's first packet passes them."""
    services, unclaimed = _service_rules(family), _unclaimed_rules(family)
    pre, out, post = HookNumber.PREROUTING, HookNumber.OUTPUT, HookNumber.POSTROUTING
    arriving, leaving = (
        ((answered_in_connections(family, arriving=way),) if options.names else ()) for way in (True, False)
    )
    return (
        Chain("prerouting", (*arriving, *services), Hook(pre, BEFORE_DSTNAT)),
        Chain("prerouting-unclaimed", unclaimed, Hook(pre, AFTER_ALL_DSTNAT)),
        Chain("output", (*leaving, *services), Hook(out, BEFORE_DSTNAT)),
        Chain("output-unclaimed", unclaimed, Hook(out, AFTER_ALL_DSTNAT)),
        Chain("postrouting", source_rules(family, options), Hook(post, BEFORE_SRCNAT)),
    )


def _service_rules(family: Family) -> tuple[nft.Rule, ...]:
    """Returns the rules from a packet's destination to the chain of its class.

    Addresses come before node ports, so a ClusterIP that is also an address of this node never answers on a node port.
    What a ClusterIP does not serve is refused, which protects the ClusterIPs from daemons of the host and node-wide rules of other
    programs (ICMP passes: a ClusterIP answers ping). Of packets to elsewhere only the block is looked up, in a set
    so small that it stays in the processor's cache, and not the address among all ClusterIPs.
    """
    regs = Loader(family)
    return (
        follow(regs.frontend(), schema.FRONTENDS, schema.DISPATCH),
        (
            regs.destination(0),
            nft.Mask(0, schema.CLUSTER_IP_BLOCK_MASKS[family]),
            nft.Lookup(schema.CLUSTER_IP_BLOCKS, 0),
            regs.destination(0),
            nft.Lookup(schema.CLUSTER_IPS, 0),
            nft.Meta(0, nft.MetaKey.L4PROTO),
            nft.Cmp(0, bytes((_ICMP[family],)), invert=True),
            nft.Verdict(nft.Code.GOTO, REFUSE_CHAIN),
        ),
        (regs.destination(0), nft.Lookup(schema.NODEPORT_ADDRESSES, 0), nft.Verdict(nft.Code.GOTO, TO_NODE_CHAIN)),
        *((_ping_rule(regs),) if family is Family.IPV6 else ()),
    )


def _ping_rule(regs: Loader) -> nft.Rule:
    """Returns the rule that lets ClusterIPs answer ping that are not local, because the node reaches them by the route of their range
    (`model/carried.py`): it translates to an address that answers."""
    return (
        nft.Meta(0, nft.MetaKey.L4PROTO),
        nft.Cmp(0, bytes((_ICMP[regs.family],))),
        nft.Payload(0, nft.PayloadBase.TRANSPORT, 0, 1),
        nft.Cmp(0, bytes((_ICMPV6_ECHO_REQUEST,))),
        regs.destination(0),
        nft.Lookup(schema.CLUSTER_IPS, 0),
        regs.destination(0),
        nft.Lookup(schema.PING_ANSWERS, 0, dreg=0),
        nft.Dnat(regs.nfproto, 0, None),
    )


def _unclaimed_rules(family: Family) -> tuple[nft.Rule, ...]:
    """Returns the rule that drops packets to addresses of the service range that no Service of ours or of another proxy has."""
    regs = Loader(family)
    return (
        (
            regs.destination(0),
            nft.Lookup(schema.SERVICE_CIDRS, 0),
            regs.destination(0),
            nft.Lookup(schema.CLUSTER_IPS, 0, invert=True),
            nft.Verdict(nft.Code.DROP),
        ),
    )
