"""Chains from a frontend's class to an endpoint, a refusal or a drop (pure).

A frontend of an ordinary service costs three lookups: its class, the chain, the endpoint. What only some frontends have
(source ranges, a second list of endpoints, affinity) is in chains that only their classes lead to.

A commit may come between two lookups of one packet. Then the second one may miss, and the rule ends; so every chain here
ends in a drop, and never lets an untranslated packet go on to the sockets of this host.
"""

from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.program import classes, schema
from nodeagent.proxy.dataplane.program.chain import Chain, ProgramOptions
from nodeagent.proxy.dataplane.program.loads import CLEAR, FROM_NODE, Loader, follow, from_pod, scratch
from nodeagent.wire.netlink.nf_tables import expressions as nft
from nodeagent.wire.netlink.uapi.rtnetlink import RTN_LOCAL

TO_NODE_CHAIN = "to-node"
_PORT_UNREACHABLE = {Family.IPV4: 3, Family.IPV6: 4}
_TCP_RST = 0x04
_DROP: nft.Rule = (nft.Verdict(nft.Code.DROP),)


def pick_chain(family: Family, pick: classes.PickClass) -> Chain:
    """Returns the chain of one class: the endpoint of a random slot.

    A sticky one first looks up whether the client had an endpoint before; the id for that stays in the scratch field until
    the endpoint is learned. All others leave that field clear. A slot that a commit has just removed leads to the first slot, which
    a frontend with endpoints always has; nft writes a constant in a key as a random choice of 1 number.
    """
    regs = Loader(family)
    words = regs.words
    key = regs.node_port() if pick.node_port else regs.frontend()
    slot = 2 if pick.node_port else words + 2
    backends = schema.NODEPORT_BACKENDS if pick.node_port else schema.BACKENDS
    translate = nft.Dnat(regs.nfproto, 0, words)

    def to_one_of(count: int) -> nft.Rule:
        return (*key, nft.Random(slot, count, pick.first_slot), nft.Lookup(backends, 0, dreg=0), translate)

    known: tuple[nft.Rule, ...] = ()
    if pick.sticky:
        known = (
            scratch(key, sticky_ids(node_port=pick.node_port, cluster_scope=pick.cluster_scope)),
            (
                regs.source(0),
                nft.Meta(words, nft.MetaKey.L4PROTO),
                nft.Meta(words + 1, nft.MetaKey.PRIORITY),
                nft.Lookup(schema.AFFINITY, 0, dreg=0),
                translate,
            ),
        )
    clear = () if pick.sticky else CLEAR
    return Chain(pick.chain, (*known, (*clear, *to_one_of(pick.count)), to_one_of(1), _DROP))


def sticky_ids(*, node_port: bool, cluster_scope: bool) -> str:
    """Returns the name of the map of affinity ids for one of a frontend's lists."""
    if node_port:
        return schema.NODEPORT_STICKY_IDS_CLUSTER_SCOPE if cluster_scope else schema.NODEPORT_STICKY_IDS
    return schema.STICKY_IDS_CLUSTER_SCOPE if cluster_scope else schema.STICKY_IDS


def special_chains(family: Family, options: ProgramOptions) -> tuple[Chain, ...]:
    """Returns the chains of the classes that always exist, and the one that looks up node ports."""
    return (
        refuse_chain(family),
        Chain(classes.DISCARD_CHAIN, (_DROP,)),
        _by_source_chain(family, options, node_port=False),
        _by_source_chain(family, options, node_port=True),
        _guarded_chain(family),
        _to_node_chain(family),
    )


def refuse_chain(family: Family) -> Chain:
    """Returns the chain that refuses fast: a reset for TCP (IPv6 clients wait a second on ICMPv6 errors), port unreachable for the rest.

    A reset of our own, answering a node's connection to an address that is also its source, passes the output hook
    as a packet to that very frontend; it must get through or the client waits.
    """
    code = _PORT_UNREACHABLE[family]
    is_tcp: nft.Rule = (nft.Meta(0, nft.MetaKey.L4PROTO), nft.Cmp(0, bytes((Protocol.TCP,))))
    is_reset: nft.Rule = (
        *is_tcp,
        nft.Payload(0, nft.PayloadBase.TRANSPORT, 13, 1),
        nft.Mask(0, bytes((_TCP_RST,))),
        nft.Cmp(0, b"\0", invert=True),
    )
    return Chain(
        classes.REFUSE_CHAIN,
        (
            (*is_reset, *CLEAR, nft.Verdict(nft.Code.ACCEPT)),
            (*is_tcp, nft.Reject(tcp_reset=True, icmp_code=code)),
            (nft.Reject(tcp_reset=False, icmp_code=code),),
        ),
    )


def _by_source_chain(family: Family, options: ProgramOptions, *, node_port: bool) -> Chain:
    """Returns the chain for two lists (externalTrafficPolicy: Local): pods and this node use the cluster-wide one, others the local one."""
    regs = Loader(family)
    key = regs.node_port() if node_port else regs.frontend()
    wide = schema.NODEPORTS_CLUSTER_SCOPE if node_port else schema.FRONTENDS_CLUSTER_SCOPE
    local = schema.NODEPORTS_LOCAL_SCOPE if node_port else schema.FRONTENDS_LOCAL_SCOPE
    insiders = tuple(source for source in (from_pod(regs, options), FROM_NODE) if source)
    return Chain(
        classes.BY_SOURCE_NODE_PORT_CHAIN if node_port else classes.BY_SOURCE_CHAIN,
        (
            *((*source, *follow(key, wide, schema.DISPATCH_SCOPED)) for source in insiders),
            follow(key, local, schema.DISPATCH_SCOPED),
            _DROP,
        ),
    )


def _guarded_chain(family: Family) -> Chain:
    """Returns the chain that tests source ranges before everything else, even before a refusal."""
    regs = Loader(family)
    outside: nft.Rule = (
        *regs.frontend(),
        regs.source(regs.words + 2),
        nft.Lookup(schema.ALLOWED_SOURCES, 0, invert=True),
        nft.Verdict(nft.Code.DROP),
    )
    return Chain(
        classes.GUARDED_CHAIN,
        (outside, follow(regs.frontend(), schema.GUARDED_FRONTENDS, schema.DISPATCH_ALLOWED), _DROP),
    )


def _to_node_chain(family: Family) -> Chain:
    """Returns the chain for node ports, at addresses where they answer; other packets go on untranslated."""
    regs = Loader(family)
    local: nft.Rule = (nft.FibType(0, source=False), nft.Cmp(0, nft.native_u32(RTN_LOCAL)))
    return Chain(TO_NODE_CHAIN, ((*local, *follow(regs.node_port(), schema.NODEPORTS, schema.DISPATCH)),))
