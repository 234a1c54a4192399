"""Which translated connections get their source rewritten (pure).

Decided in postrouting from the connection's original tuple; no packet mark is needed. The order tells the kinds of
frontends apart: ClusterIPs, then addresses whose source is always rewritten, then addresses that keep it, and only then
node ports, which share numbers with anything. A node port counts only together with an endpoint it leads to: another
program may have translated a connection to the same port of some other address.

Before all that come two rules that spare most connections the look at all ClusterIPs, which are thousands: a pod's, where
nothing but ClusterIPs can be the destination, and the node's by IPv4, whose source says what the destination was.
"""

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.chain import Chain, ProgramOptions
from nodeagent.dataplane.nft.loads import CLEAR, FROM_NODE, NOT_TRANSLATED, Loader, from_pod, scratch, to_pods_interface
from nodeagent.model.addresses import Family
from nodeagent.netlink.nf_tables.expressions import (
    Cmp,
    Code,
    Lookup,
    Mask,
    Masquerade,
    Meta,
    MetaKey,
    Rule,
    Verdict,
    native_u32,
)

_FROM_CLUSTER_IP = "from-cluster-ip"
_FROM_LOCAL_POLICY = "from-local-policy"
_REWRITE = Masquerade()
_HAS_INPUT: Rule = (Meta(0, MetaKey.IIF), Cmp(0, native_u32(0), invert=True))
"""iif != 0: it was routed from one interface to another."""
_HAS_NO_INPUT: Rule = (Meta(0, MetaKey.IIF), Cmp(0, native_u32(0)))
"""iif 0: this node sends it, or br_netfilter took it from between two ports of a bridge (br_nf_post_routing)."""
_SENT_HERE: Rule = (*_HAS_NO_INPUT, *FROM_NODE)
"""iif 0 fib saddr type local. The first part spares most packets the look at the routes."""


def source_rules(family: Family, options: ProgramOptions) -> tuple[Rule, ...]:
    """The rules of the postrouting base chain."""
    regs = Loader(family)
    return (
        (*NOT_TRANSLATED, Verdict(Code.RETURN)),
        *_of_pods(regs, options),
        *_of_the_node(regs),
        (regs.original_destination(0), Lookup(schema.CLUSTER_IPS, 0), Verdict(Code.GOTO, _FROM_CLUSTER_IP)),
        (*regs.original_frontend(), Lookup(schema.MASQUERADE_FRONTENDS, 0), _REWRITE),
        (
            *scratch(regs.original_frontend(), schema.FRONTENDS_CLUSTER_SCOPE),
            Verdict(Code.GOTO, _FROM_LOCAL_POLICY),
        ),
        (*regs.node_port_endpoint(), Lookup(schema.MASQUERADE_NODEPORTS, 0), _REWRITE),
        (*regs.node_port_endpoint(), Lookup(schema.LOCAL_POLICY_NODEPORTS, 0), Verdict(Code.GOTO, _FROM_LOCAL_POLICY)),
    )


def source_chains(family: Family, options: ProgramOptions) -> tuple[Chain, ...]:
    """What postrouting leads to."""
    regs = Loader(family)
    meets_itself: Rule = (regs.source(0), regs.destination(regs.words), Lookup(schema.HAIRPIN, 0))
    itself: Rule = (*meets_itself, _REWRITE)
    return (
        Chain(_FROM_CLUSTER_IP, (*_to_cluster_ip(regs, options), itself)),
        Chain(_FROM_LOCAL_POLICY, (CLEAR, (*FROM_NODE, _REWRITE), itself)),
    )


def _of_pods(regs: Loader, options: ProgramOptions) -> tuple[Rule, ...]:
    """Where no address but ClusterIPs leads anywhere, a pod keeps its source unless it meets itself."""
    from_pods = from_pod(regs, options)
    if options.masquerade_all or not from_pods:
        return ()
    return (
        (
            *_HAS_INPUT,
            *from_pods,
            regs.original_destination(0),
            Mask(0, schema.CLUSTER_IP_BLOCK_MASKS[regs.family]),
            Lookup(schema.CLUSTER_IP_ONLY_BLOCKS, 0),
            regs.source(0),
            regs.destination(regs.words),
            Lookup(schema.HAIRPIN, 0, invert=True),
            Verdict(Code.RETURN),
        ),
    )


def _of_the_node(regs: Loader) -> tuple[Rule, ...]:
    """By IPv4 a program that leaves its source to the kernel has the ClusterIP for it, as that is local; no answer would
    come to it from elsewhere. The source decides; what was routed is spared the look."""
    if regs.family is Family.IPV6:
        return ()
    return ((*_HAS_NO_INPUT, regs.source(0), Lookup(schema.SERVICE_CIDRS, 0), _REWRITE),)


def _to_cluster_ip(regs: Loader, options: ProgramOptions) -> tuple[Rule, ...]:
    """Everybody's but a pod's. Where pods cannot be told: the node's own.

    What source a connection of the node has says nothing: for IPv4 it is the ClusterIP itself, for IPv6 any address of the
    node, and either may lie in the range of the pods.
    """
    if options.masquerade_all:
        return ((_REWRITE,),)
    return (*((*rule, _REWRITE) for rule in _not_from_pods(regs, options)), (*_SENT_HERE, _REWRITE))


def _not_from_pods(regs: Loader, options: ProgramOptions) -> tuple[Rule, ...]:
    """What is not a pod's. Where pods are told by their interface, a packet that a bridge carried from one port to another
    has none but that by which it leaves: the bridge. A packet of the node that leaves by it is left to `_SENT_HERE`."""
    not_from_pod = from_pod(regs, options, invert=True)
    if not not_from_pod:
        return ()
    elsewhere = to_pods_interface(options, invert=True)
    if not elsewhere:
        return (not_from_pod,)
    return ((*_HAS_INPUT, *not_from_pod), (*_HAS_NO_INPUT, *elsewhere))
