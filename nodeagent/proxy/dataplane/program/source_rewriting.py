"""Decides which translated connections get their source rewritten (pure).

Decided in postrouting from the connection's original tuple; no packet mark is needed. The order distinguishes the kinds of
frontends: ClusterIPs, then addresses whose source is always rewritten, then addresses that keep it, and only then
node ports, whose numbers any other destination may have too. A node port counts only together with an endpoint it leads to: another
program may have translated a connection to the same port of some other address.

If pods can be detected, connections that do not come from pods are separated first. For the rest, some blocks of addresses contain
no possible destination but ClusterIPs; that spares most connections the lookup among all ClusterIPs, which are thousands.
"""

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import loads, schema
from nodeagent.proxy.dataplane.program.chain import Chain, ProgramOptions
from nodeagent.wire.netlink.nf_tables import expressions as nft
from nodeagent.wire.netlink.uapi.rtnetlink import RTN_LOCAL

NOT_FROM_PODS = "not-from-pods"
_FROM_CLUSTER_IP = "from-cluster-ip"
_FROM_OTHER_ADDRESS = "from-other-address"
_FROM_LOCAL_POLICY = "from-local-policy"
_REWRITE = nft.Masquerade()
_HAS_INPUT: nft.Rule = (nft.Meta(0, nft.MetaKey.IIF), nft.Cmp(0, nft.native_u32(0), invert=True))
"""iif != 0: it was routed from one interface to another."""
_HAS_NO_INPUT: nft.Rule = (nft.Meta(0, nft.MetaKey.IIF), nft.Cmp(0, nft.native_u32(0)))
"""iif 0: this node sends it, or br_netfilter took it from between two ports of a bridge (br_nf_post_routing)."""
_KEEPS_NODE_ADDRESS: nft.Rule = (
    *_HAS_NO_INPUT,
    nft.FibType(0, source=True, at_output=True),
    nft.Cmp(0, nft.native_u32(RTN_LOCAL)),
    nft.Verdict(nft.Code.RETURN),
)
"""iif 0, fib saddr . oif type local: the source is an address of the interface by which the packet leaves, one of which it
would get. Choosing it, and a port, is most of what the node's first packet costs in our rules."""


def source_rules(family: Family, options: ProgramOptions) -> tuple[nft.Rule, ...]:
    """Returns the rules of the postrouting base chain."""
    regs = loads.Loader(family)
    untranslated: nft.Rule = (*loads.NOT_TRANSLATED, nft.Verdict(nft.Code.RETURN))
    others: nft.Rule = (nft.Verdict(nft.Code.GOTO, _FROM_OTHER_ADDRESS),)
    if options.masquerade_all:
        return (untranslated, _all_to_cluster_ips(regs), others)
    return (
        untranslated,
        *((*rule, nft.Verdict(nft.Code.GOTO, NOT_FROM_PODS)) for rule in _not_from_pods(regs, options)),
        *_rules_keeping_source(regs),
        (regs.original_destination(0), nft.Lookup(schema.CLUSTER_IPS, 0), nft.Verdict(nft.Code.GOTO, _FROM_CLUSTER_IP)),
        others,
    )


def source_chains(family: Family, options: ProgramOptions) -> tuple[Chain, ...]:
    """Returns the chains that postrouting leads to."""
    regs = loads.Loader(family)
    meets_itself: nft.Rule = (regs.source(0), regs.destination(regs.words), nft.Lookup(schema.HAIRPIN, 0))
    itself: nft.Rule = (*meets_itself, _REWRITE)
    apart = options.masquerade_all or not _not_from_pods(regs, options)
    return (
        *(
            ()
            if apart
            else (
                Chain(
                    NOT_FROM_PODS,
                    (
                        _KEEPS_NODE_ADDRESS,
                        _all_to_cluster_ips(regs),
                        (nft.Verdict(nft.Code.GOTO, _FROM_OTHER_ADDRESS),),
                    ),
                ),
            )
        ),
        *(() if options.masquerade_all else (Chain(_FROM_CLUSTER_IP, (*_from_itself(regs), itself)),)),
        Chain(_FROM_OTHER_ADDRESS, _other_addresses(regs)),
        Chain(_FROM_LOCAL_POLICY, (loads.CLEAR, (*loads.FROM_NODE, _REWRITE), itself)),
    )


def _all_to_cluster_ips(regs: loads.Loader) -> nft.Rule:
    return (regs.original_destination(0), nft.Lookup(schema.CLUSTER_IPS, 0), _REWRITE)


def _not_from_pods(regs: loads.Loader, options: ProgramOptions) -> tuple[nft.Rule, ...]:
    """Returns rules that match what does not come from pods, if pods can be detected.

    With detection by interface, a packet that a bridge carried from one port to another has only its output interface: the bridge. The
    same is true of a packet of the node to a pod of that bridge; only its source distinguishes it.
    """
    not_from_pod = loads.from_pod(regs, options, invert=True)
    if not not_from_pod:
        return ()
    elsewhere = loads.to_pods_interface(options, invert=True)
    if not elsewhere:
        return (not_from_pod,)
    return ((*_HAS_INPUT, *not_from_pod), (*_HAS_NO_INPUT, *elsewhere), (*_HAS_NO_INPUT, *loads.FROM_NODE))


def _rules_keeping_source(regs: loads.Loader) -> tuple[nft.Rule, ...]:
    """Returns rules for connections that keep their source: from pods, to blocks where only ClusterIPs lead anywhere, except connections
    of a pod to itself.

    In IPv4 the source may be a ClusterIP (`_from_itself`), so it is tested first whether the source is near one. Routed packets
    need no such test.
    """
    block_mask = schema.CLUSTER_IP_BLOCK_MASKS[regs.family]
    keeps: nft.Rule = (
        regs.original_destination(0),
        nft.Mask(0, block_mask),
        nft.Lookup(schema.CLUSTER_IP_ONLY_BLOCKS, 0),
        regs.source(0),
        regs.destination(regs.words),
        nft.Lookup(schema.HAIRPIN, 0, invert=True),
        nft.Verdict(nft.Code.RETURN),
    )
    if regs.family is Family.IPV6:
        return (keeps,)
    far_away: nft.Rule = (regs.source(0), nft.Mask(0, block_mask), nft.Lookup(schema.CLUSTER_IP_BLOCKS, 0, invert=True))
    return ((*_HAS_INPUT, *keeps), (*_HAS_NO_INPUT, *far_away, *keeps))


def _from_itself(regs: loads.Loader) -> tuple[nft.Rule, ...]:
    """Returns the rule for the node's own connections that have a ClusterIP as their source. In IPv4 the kernel chooses that source while
    the node has no address that routes could prefer; no answer from elsewhere would reach it."""
    if regs.family is Family.IPV6:
        return ()
    return ((*_HAS_NO_INPUT, regs.source(0), nft.Lookup(schema.CLUSTER_IPS, 0), _REWRITE),)


def _other_addresses(regs: loads.Loader) -> tuple[nft.Rule, ...]:
    return (
        (*regs.original_frontend(), nft.Lookup(schema.MASQUERADE_FRONTENDS, 0), _REWRITE),
        (
            *loads.scratch(regs.original_frontend(), schema.FRONTENDS_CLUSTER_SCOPE),
            nft.Verdict(nft.Code.GOTO, _FROM_LOCAL_POLICY),
        ),
        (*regs.node_port_endpoint(), nft.Lookup(schema.MASQUERADE_NODEPORTS, 0), _REWRITE),
        (
            *regs.node_port_endpoint(),
            nft.Lookup(schema.LOCAL_POLICY_NODEPORTS, 0),
            nft.Verdict(nft.Code.GOTO, _FROM_LOCAL_POLICY),
        ),
    )
