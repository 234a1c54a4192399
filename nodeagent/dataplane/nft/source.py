"""Which translated connections get their source rewritten (pure).

Decided in postrouting from the connection's original tuple; no packet mark is needed. The order tells the kinds of
frontends apart: ClusterIPs, then addresses whose source is always rewritten, then addresses that keep it, and only then
node ports, which share numbers with anything. A node port counts only together with an endpoint it leads to: another
program may have translated a connection to the same port of some other address.
"""

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.chain import Chain, ProgramOptions
from nodeagent.dataplane.nft.expressions import Code, Lookup, Masquerade, Rule, Verdict
from nodeagent.dataplane.nft.loads import CLEAR, FROM_NODE, NOT_TRANSLATED, Loader, from_pod, scratch
from nodeagent.model.addresses import Family

_FROM_CLUSTER_IP = "from-cluster-ip"
_FROM_LOCAL_POLICY = "from-local-policy"
_REWRITE = Masquerade()


def source_rules(family: Family) -> tuple[Rule, ...]:
    """The rules of the postrouting base chain."""
    regs = Loader(family)
    return (
        (*NOT_TRANSLATED, Verdict(Code.RETURN)),
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
    itself: Rule = (regs.source(0), regs.destination(regs.words), Lookup(schema.HAIRPIN, 0), _REWRITE)
    return (
        Chain(_FROM_CLUSTER_IP, (*_to_cluster_ip(regs, options), itself)),
        Chain(_FROM_LOCAL_POLICY, (CLEAR, (*FROM_NODE, _REWRITE), itself)),
    )


def _to_cluster_ip(regs: Loader, options: ProgramOptions) -> tuple[Rule, ...]:
    """Not from a pod. Where pods cannot be told: the node's own connections.

    An IPv4 connection of the node has the ClusterIP as its source. An IPv6 one has any address of the node, of the pod
    range too, which may be none that the endpoint can answer to.
    """
    if options.masquerade_all:
        return ((_REWRITE,),)
    not_from_pod = from_pod(regs, options, invert=True)
    rules: tuple[Rule, ...] = ((*not_from_pod, _REWRITE),) if not_from_pod else ()
    if regs.family is Family.IPV6:
        return (*rules, (*FROM_NODE, _REWRITE))
    return rules or ((regs.source(0), Lookup(schema.CLUSTER_IPS, 0), _REWRITE),)
