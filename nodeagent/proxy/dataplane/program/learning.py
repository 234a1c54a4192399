"""After the translation: remember the chosen endpoint for clients with affinity, and clear the scratch field (pure).

This happens in filter chains just behind the destination translation, where no other program's nat chain can prevent
it. They see every packet, so their one rule tests the cheapest first: the scratch field is 0 in nearly all of them. The chains are
added with the first frontend that has affinity; nothing else leaves that field set.
"""

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Chain, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import STICKY_BIT
from nodeagent.proxy.dataplane.program.loads import CLEAR, FROM_NODE, Loader, follow, from_pod, port, scratch
from nodeagent.proxy.dataplane.program.picking import sticky_ids
from nodeagent.wire.netlink.nf_tables import expressions as nft
from nodeagent.wire.netlink.uapi.nfnetlink_conntrack import IPS_CONFIRMED, IPS_DST_NAT

TRANSLATED_CHAIN = "translated"
_LEARN_CHAIN = "learn-affinity"
_ZERO = nft.native_u32(0)

JUST_TRANSLATED: nft.Rule = (
    nft.Meta(0, nft.MetaKey.PRIORITY),
    nft.Cmp(0, _ZERO, invert=True),
    nft.Ct(0, nft.CtKey.STATUS),
    nft.Mask(0, nft.native_u32(IPS_DST_NAT | IPS_CONFIRMED)),
    nft.Cmp(0, nft.native_u32(IPS_DST_NAT)),
    nft.Verdict(nft.Code.GOTO, TRANSLATED_CHAIN),
)
"""The rule of their base chains. A connection is not confirmed until its first packet leaves the node or is delivered; packets of
confirmed connections, and untranslated ones, keep the priority they came with. (ct state stays new until the first answer.)"""


def learn_chain_name(seconds: int, *, node_port: bool) -> str:
    """`learn-10800`, `learn-10800-nodeport`"""
    return f"learn-{seconds}{'-nodeport' if node_port else ''}"


def learn_chain(family: Family, options: ProgramOptions, seconds: int, *, node_port: bool) -> Chain:
    """Returns the chain that remembers the chosen endpoint for the client, under the id of the list it was chosen from.

    Pods and the node itself are served from the cluster-wide list if a frontend has one; what they
    learn there must not bind them in the local list, so their rule ends the chain.
    """
    regs = Loader(family)
    words = regs.words
    key = regs.original_node_port() if node_port else regs.original_frontend()

    def learn(ids: str) -> nft.Rule:
        return (
            *scratch(key, ids),
            regs.source(0),
            nft.Meta(words, nft.MetaKey.L4PROTO),
            nft.Meta(words + 1, nft.MetaKey.PRIORITY),
            regs.destination(words + 2),
            port(2 * words + 2),
            nft.UpdateMap(schema.AFFINITY, 0, words + 2, seconds),
        )

    short_circuit = learn(sticky_ids(node_port=node_port, cluster_scope=True))
    rules: list[nft.Rule] = list(_unless_node_port(regs)) if node_port else []
    rules += [
        (*source, *short_circuit, nft.Verdict(nft.Code.RETURN))
        for source in (from_pod(regs, options), FROM_NODE)
        if source
    ]
    rules.append(learn(sticky_ids(node_port=node_port, cluster_scope=False)))
    return Chain(learn_chain_name(seconds, node_port=node_port), tuple(rules))


def learning_chains(family: Family) -> tuple[Chain, ...]:
    """Returns the chains that the base chains lead to: learn, if an id is there, then clear the scratch field."""
    regs = Loader(family)
    sticky: nft.Rule = (
        nft.Meta(0, nft.MetaKey.PRIORITY),
        nft.Mask(0, nft.native_u32(STICKY_BIT)),
        nft.Cmp(0, _ZERO, invert=True),
        nft.Verdict(nft.Code.JUMP, _LEARN_CHAIN),
    )
    return (
        Chain(
            _LEARN_CHAIN,
            (
                follow(regs.original_frontend(), schema.STICKY_TIMEOUTS, schema.LEARN),
                follow(regs.original_node_port(), schema.NODEPORT_STICKY_TIMEOUTS, schema.NODEPORT_LEARN),
            ),
        ),
        Chain(TRANSLATED_CHAIN, (sticky, CLEAR)),
    )


def _unless_node_port(regs: Loader) -> tuple[nft.Rule, ...]:
    """Returns rules that leave the chain for a connection to an address: its port may be the number of another Service's node port."""
    leave = nft.Verdict(nft.Code.RETURN)
    return (
        (regs.original_destination(0), nft.Lookup(schema.CLUSTER_IPS, 0), leave),
        (*regs.original_frontend(), nft.Lookup(schema.MASQUERADE_FRONTENDS, 0), leave),
        (*scratch(regs.original_frontend(), schema.FRONTENDS_CLUSTER_SCOPE), leave),
    )
