"""The constant program: chains and rules of the table, and when a new one is needed.

The rules know no service. They depend on four options and, for the small pick and learn chains, on which endpoint
counts and affinity timeouts are in use. docs/dataplane.md tells the story of a packet through them.

What every rule may rely on: nat chains see only the first packet of a connection (nf_nat_core.c), so established
connections never pass here. skb->priority is the scratch field between rules; it is cleared before a packet leaves.
A lookup that misses ends its rule, which is why a scratch value is set and used within one rule.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.classes import (
    CLUSTER_SCOPE_OFFSET,
    DISCARD,
    DISCARD_CHAIN,
    REFUSE,
    REFUSE_CHAIN,
    PickClass,
)
from nodeagent.dataplane.nft.expressions import (
    IPS_DST_NAT,
    RTN_LOCAL,
    Cmp,
    Code,
    Ct,
    CtKey,
    Dnat,
    FibType,
    Lookup,
    Mask,
    Masquerade,
    Meta,
    MetaKey,
    MetaSet,
    Payload,
    PayloadBase,
    Random,
    Reject,
    Rule,
    UpdateMap,
    Verdict,
    native_u32,
)
from nodeagent.dataplane.nft.loads import CLEAR, Loader, follow, port, scratch
from nodeagent.model.addresses import Family, Protocol

_ICMP = {Family.IPV4: 1, Family.IPV6: 58}
_PORT_UNREACHABLE = {Family.IPV4: 3, Family.IPV6: 4}
_TCP_RST = 0x04


class PodDetection(Enum):
    """How traffic of pods is told from other traffic."""

    NONE = "none"
    CIDR = "cidr"
    INTERFACE = "interface"
    INTERFACE_PREFIX = "interface-prefix"


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """What the rules depend on. interface: the bridge's name, or the prefix of pod interfaces."""

    pod_detection: PodDetection = PodDetection.NONE
    interface: str = ""
    masquerade_all: bool = False
    counters: bool = True


@dataclass(frozen=True, slots=True)
class Hook:
    """Where a base chain is attached: nat type, hook number (enum nf_inet_hooks) and priority."""

    number: int
    priority: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain and its rules, in order."""

    name: str
    rules: tuple[Rule, ...]
    hook: Hook | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """All chains of one family's table, and the elements of the verdict maps that lead to them."""

    family: Family
    chains: tuple[Chain, ...]
    verdicts: dict[str, dict[bytes, str]] = field(default_factory=dict)

    def chain(self, name: str) -> Chain:
        """The chain of that name; KeyError when there is none."""
        for chain in self.chains:
            if chain.name == name:
                return chain
        raise KeyError(name)


def build_program(
    family: Family, options: ProgramOptions, classes: Iterable[PickClass], timeouts: Iterable[int]
) -> Program:
    """The program with a chain for each class and each affinity timeout (seconds) given."""
    classes = sorted(set(classes))
    timeouts = sorted(set(timeouts))
    chains = (
        _refuse(family),
        Chain(DISCARD_CHAIN, ((Verdict(Code.DROP),),)),
        *(pick_chain(family, pick) for pick in classes),
        *(
            learn_chain(family, options, seconds, node_port=node_port)
            for seconds in timeouts
            for node_port in (False, True)
        ),
        *_learning(family),
        *_after_translation(family, options),
        *_services(family),
        *_base_chains(family, options),
    )
    return Program(family, chains, verdict_elements(classes, timeouts))


def verdict_elements(classes: Iterable[PickClass], timeouts: Iterable[int]) -> dict[str, dict[bytes, str]]:
    """Elements of the verdict maps, as map name → key → chain (always by goto)."""
    dispatch = {native_u32(REFUSE): REFUSE_CHAIN, native_u32(DISCARD): DISCARD_CHAIN}
    dispatch.update((native_u32(pick.number), pick.chain) for pick in classes)
    seconds = list(timeouts)
    return {
        schema.DISPATCH: dispatch,
        schema.LEARN: {native_u32(value): learn_chain_name(value, node_port=False) for value in seconds},
        schema.NODEPORT_LEARN: {native_u32(value): learn_chain_name(value, node_port=True) for value in seconds},
    }


def pick_chain(family: Family, pick: PickClass) -> Chain:
    """The chain of one class: a slot number into the scratch field, then the endpoint of that slot.

    A sticky one first looks whether the client had an endpoint before.
    """
    regs = Loader(family)
    words = regs.words
    key = regs.node_port() if pick.node_port else regs.frontend()
    slot = 2 if pick.node_port else words + 2
    backends = schema.NODEPORT_BACKENDS if pick.node_port else schema.BACKENDS
    offset = CLUSTER_SCOPE_OFFSET if pick.cluster_scope else 0
    translate = Dnat(regs.nfproto, 0, words)
    rules: list[Rule] = []
    if pick.sticky:
        rules += [
            scratch(key, _sticky_ids(node_port=pick.node_port, cluster_scope=pick.cluster_scope)),
            (
                regs.source(0),
                Meta(words, MetaKey.L4PROTO),
                Meta(words + 1, MetaKey.PRIORITY),
                Lookup(schema.AFFINITY, 0, dreg=0),
                translate,
            ),
        ]
    rules += [
        (Random(0, pick.count, offset), MetaSet(0, MetaKey.PRIORITY)),
        (*key, Meta(slot, MetaKey.PRIORITY), Lookup(backends, 0, dreg=0), translate),
    ]
    return Chain(pick.chain, tuple(rules))


def _sticky_ids(*, node_port: bool, cluster_scope: bool) -> str:
    if node_port:
        return schema.NODEPORT_STICKY_IDS_CLUSTER_SCOPE if cluster_scope else schema.NODEPORT_STICKY_IDS
    return schema.STICKY_IDS_CLUSTER_SCOPE if cluster_scope else schema.STICKY_IDS


def learn_chain_name(seconds: int, *, node_port: bool) -> str:
    """`learn-10800`, `learn-10800-nodeport`"""
    return f"learn-{seconds}{'-nodeport' if node_port else ''}"


def learn_chain(family: Family, options: ProgramOptions, seconds: int, *, node_port: bool) -> Chain:
    """Remember the chosen endpoint for the client, under the id of the list it was chosen from.

    Pods and the node itself were served from the cluster-wide list where a frontend has one of its own; what they
    learn there must not bind them in the local list, so their rule ends the chain.
    """
    regs = Loader(family)
    words = regs.words
    key = regs.original_node_port() if node_port else regs.original_frontend()

    def learn(ids: str) -> Rule:
        return (
            *scratch(key, ids),
            regs.original_source(0),
            Meta(words, MetaKey.L4PROTO),
            Meta(words + 1, MetaKey.PRIORITY),
            regs.destination(words + 2),
            port(2 * words + 2),
            UpdateMap(schema.AFFINITY, 0, words + 2, seconds),
        )

    short_circuit = learn(_sticky_ids(node_port=node_port, cluster_scope=True))
    rules: list[Rule] = list(_unless_node_port(regs)) if node_port else []
    rules += [
        (*source, *short_circuit, Verdict(Code.RETURN))
        for source in (_from_pod(regs, options), (FibType(0, source=True), Cmp(0, native_u32(RTN_LOCAL))))
        if source
    ]
    rules.append(learn(_sticky_ids(node_port=node_port, cluster_scope=False)))
    return Chain(learn_chain_name(seconds, node_port=node_port), tuple(rules))


def _unless_node_port(regs: Loader) -> tuple[Rule, ...]:
    """Leaves the chain for a connection to an address: its port may be the number of somebody's node port."""
    leave = Verdict(Code.RETURN)
    return (
        (regs.original_destination(0), Lookup(schema.CLUSTER_IPS, 0), leave),
        (*regs.original_frontend(), Lookup(schema.MASQUERADE_FRONTENDS, 0), leave),
        (*scratch(regs.original_frontend(), schema.FRONTENDS_CLUSTER_SCOPE), leave),
    )


def _from_pod(regs: Loader, options: ProgramOptions, *, invert: bool = False) -> Rule:
    """Matches traffic of pods (inverted: of anyone else); empty when pods cannot be told."""
    match options.pod_detection:
        case PodDetection.NONE:
            return ()
        case PodDetection.CIDR:
            return (regs.source(0), Lookup(schema.POD_CIDRS, 0, invert=invert))
        case PodDetection.INTERFACE:
            name = options.interface.encode().ljust(16, b"\0")
        case PodDetection.INTERFACE_PREFIX:
            name = options.interface.encode()
    return (Meta(0, MetaKey.IIFNAME), Cmp(0, name, invert=invert))


def _refuse(family: Family) -> Chain:
    """Fail fast: a reset for TCP (IPv6 clients wait a second on ICMPv6 errors), port unreachable for the rest.

    A reset of our own, answering a node's connection to an address that is also its source, passes the output hook
    as a packet to that very frontend; it must get through or the client waits.
    """
    code = _PORT_UNREACHABLE[family]
    is_tcp: Rule = (Meta(0, MetaKey.L4PROTO), Cmp(0, bytes((Protocol.TCP,))))
    is_reset: Rule = (
        *is_tcp,
        Payload(0, PayloadBase.TRANSPORT, 13, 1),
        Mask(0, bytes((_TCP_RST,))),
        Cmp(0, b"\0", invert=True),
    )
    return Chain(
        REFUSE_CHAIN,
        (
            (*is_reset, *CLEAR, Verdict(Code.ACCEPT)),
            (*is_tcp, Reject(tcp_reset=True, icmp_code=code)),
            (Reject(tcp_reset=False, icmp_code=code),),
        ),
    )


def _learning(family: Family) -> tuple[Chain, ...]:
    """Leads a just translated connection of a sticky frontend to the learn chain of its timeout."""
    regs = Loader(family)
    return (
        Chain(
            "learn-affinity",
            (
                follow(regs.original_frontend(), schema.STICKY_TIMEOUTS, schema.LEARN),
                follow(regs.original_node_port(), schema.NODEPORT_STICKY_TIMEOUTS, schema.NODEPORT_LEARN),
            ),
        ),
    )


def _after_translation(family: Family, options: ProgramOptions) -> tuple[Chain, ...]:
    """Which translated connections get their source rewritten, decided from the original tuple: no mark is needed.

    In `from-service` the order tells the kinds of frontends apart: ClusterIPs, then addresses whose source is always
    rewritten, then addresses that keep it, and only then node ports, which share numbers with anything.
    """
    regs = Loader(family)
    masquerade = Masquerade()
    to_original = regs.original_destination(0)
    cluster_ip: list[Rule] = []
    if options.masquerade_all:
        cluster_ip.append((masquerade,))
    elif not_from_pod := _from_pod(regs, options, invert=True):
        cluster_ip.append((*not_from_pod, masquerade))
    keep_source = Verdict(Code.GOTO, "from-local-policy")
    return (
        Chain("from-cluster-ip", tuple(cluster_ip)),
        Chain(
            "from-local-policy",
            (CLEAR, (FibType(0, source=True), Cmp(0, native_u32(RTN_LOCAL)), masquerade)),
        ),
        Chain(
            "from-service",
            (
                (Verdict(Code.JUMP, "learn-affinity"),),
                CLEAR,
                (regs.source(0), regs.destination(regs.words), Lookup(schema.HAIRPIN, 0), masquerade),
                (regs.source(0), Lookup(schema.CLUSTER_IPS, 0), masquerade),
                (to_original, Lookup(schema.CLUSTER_IPS, 0), Verdict(Code.GOTO, "from-cluster-ip")),
                (*regs.original_frontend(), Lookup(schema.MASQUERADE_FRONTENDS, 0), masquerade),
                (*scratch(regs.original_frontend(), schema.FRONTENDS_CLUSTER_SCOPE), keep_source),
                (*regs.original_node_port(), Lookup(schema.MASQUERADE_NODEPORTS, 0), masquerade),
                (*scratch(regs.original_node_port(), schema.NODEPORTS_CLUSTER_SCOPE), keep_source),
            ),
        ),
        Chain("from-service-to-node", ((Verdict(Code.JUMP, "learn-affinity"),), CLEAR)),
    )


def _services(family: Family) -> tuple[Chain, ...]:
    """From a packet's destination to a pick chain, a refusal or a drop; in two scopes.

    The source check comes before everything. Addresses come before node ports, so a ClusterIP that is also an
    address of this node never answers on a node port. Whatever a ClusterIP does not serve is refused, which is what
    keeps daemons of the host off the ClusterIPs (ICMP passes: a ClusterIP answers ping); addresses of the service
    range that nobody has are dropped.
    """
    regs = Loader(family)
    words = regs.words
    guard: Rule = (
        *regs.frontend(),
        Lookup(schema.GUARDED, 0),
        *regs.frontend(),
        regs.source(words + 2),
        Lookup(schema.ALLOWED_SOURCES, 0, invert=True),
        Verdict(Code.DROP),
    )
    unclaimed: tuple[Rule, ...] = (
        (
            regs.destination(0),
            Lookup(schema.CLUSTER_IPS, 0),
            Meta(0, MetaKey.L4PROTO),
            Cmp(0, bytes((_ICMP[family],)), invert=True),
            Verdict(Code.GOTO, REFUSE_CHAIN),
        ),
        (
            regs.destination(0),
            Lookup(schema.SERVICE_CIDRS, 0),
            regs.destination(0),
            Lookup(schema.CLUSTER_IPS, 0, invert=True),
            Verdict(Code.DROP),
        ),
    )
    to_node: Rule = (
        regs.destination(0),
        Lookup(schema.NODEPORT_ADDRESSES, 0),
        FibType(0, source=False),
        Cmp(0, native_u32(RTN_LOCAL)),
    )

    def dispatch(from_map: str) -> Rule:
        return follow(regs.frontend(), from_map, schema.DISPATCH)

    def dispatch_node_port(from_map: str) -> Rule:
        return (*to_node, *follow(regs.node_port(), from_map, schema.DISPATCH))

    return (
        Chain("services", (guard, dispatch(schema.FRONTENDS), *unclaimed, dispatch_node_port(schema.NODEPORTS))),
        Chain(
            "services-cluster-scope",
            (
                guard,
                dispatch(schema.FRONTENDS_CLUSTER_SCOPE),
                dispatch(schema.FRONTENDS),
                *unclaimed,
                dispatch_node_port(schema.NODEPORTS_CLUSTER_SCOPE),
                dispatch_node_port(schema.NODEPORTS),
            ),
        ),
    )


def _base_chains(family: Family, options: ProgramOptions) -> tuple[Chain, ...]:
    """Where the kernel enters. Priorities: DNAT at dstnat (-100), source at srcnat (100), input just before 100."""
    regs = Loader(family)
    translated: Rule = (
        Ct(0, CtKey.STATUS),
        Mask(0, native_u32(IPS_DST_NAT)),
        Cmp(0, native_u32(0), invert=True),
    )
    from_pod = _from_pod(regs, options)
    pods: tuple[Rule, ...] = ((*from_pod, Verdict(Code.GOTO, "services-cluster-scope")),) if from_pod else ()
    return (
        Chain("prerouting", (*pods, (Verdict(Code.GOTO, "services"),)), Hook(0, -100)),
        Chain("output", ((Verdict(Code.GOTO, "services-cluster-scope"),),), Hook(3, -100)),
        Chain("input", ((*translated, Verdict(Code.JUMP, "from-service-to-node")),), Hook(1, 90)),
        Chain("postrouting", ((*translated, Verdict(Code.JUMP, "from-service")),), Hook(4, 100)),
    )
