"""Established connections that we translated go into a flowtable, if the option `dataplane.flowtable` is on (pure).

Further packets of such a connection are forwarded from the ingress hook of the device at which they arrive, and pass no chain. So the
chain that adds them comes behind those of all other programs: what one of these drops is never added.

Not added are connections that other programs translated, and answers: between two ports of a bridge, br_netfilter gives an answer a
route that belongs to the bridge (br_netfilter_hooks.c, bridge_parent_rtable), which a flowtable must not keep. A connection is
assured (`ct status assured`) when TCP has shaken hands, or when UDP has gone on for two seconds: single queries are not worth an entry.
"""

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Chain, ChainType, Hook, HookNumber
from nodeagent.proxy.dataplane.program.loads import CLEAR, Loader, scratch
from nodeagent.wire.netlink.conntrack import state_bit
from nodeagent.wire.netlink.nf_tables import expressions as nft
from nodeagent.wire.netlink.uapi.nf_tables import IP_CT_DIR_ORIGINAL
from nodeagent.wire.netlink.uapi.nfnetlink_conntrack import (
    IP_CT_ESTABLISHED,
    IPS_ASSURED,
    IPS_DST_NAT,
    IPS_OFFLOAD,
)

BEHIND_ALL_FILTERS = 1000
"""Filters of others are at 0, those of iptables' table `security` at 50."""
OFFLOAD_CHAIN = "to-flowtable"
FORWARD_CHAIN = "forward"
_ZERO = nft.native_u32(0)
_ADD = nft.FlowOffload(schema.FLOWTABLE)
_ASSURED_AND_TRANSLATED: nft.Rule = (
    nft.Ct(0, nft.CtKey.STATUS),
    nft.Mask(0, nft.native_u32(IPS_ASSURED | IPS_DST_NAT | IPS_OFFLOAD)),
    nft.Cmp(0, nft.native_u32(IPS_ASSURED | IPS_DST_NAT)),
    nft.Ct(0, nft.CtKey.STATE),
    nft.Mask(0, state_bit(IP_CT_ESTABLISHED)),
    nft.Cmp(0, _ZERO, invert=True),
    nft.Ct(0, nft.CtKey.DIRECTION),
    nft.Cmp(0, bytes((IP_CT_DIR_ORIGINAL,))),
)
"""Packets of connections that are in a flowtable still come here, if they arrive at a device that it does not have. An ICMP error is of the
connection that it is about, but of the state `related`."""


def offloading_chains(family: Family) -> tuple[Chain, ...]:
    """Returns the chain of the forward hook, behind the one that it leads to. This one knows by the original destination which
    connections are ours; it reads no element that counts connections. A map can only be looked up into the scratch field, so this packet
    leaves with the priority 0, as the first one of the connection did."""
    regs = Loader(family)
    to_ours = nft.Verdict(nft.Code.GOTO, OFFLOAD_CHAIN)
    return (
        Chain(
            OFFLOAD_CHAIN,
            (
                (regs.original_destination(0), nft.Lookup(schema.CLUSTER_IPS, 0), _ADD),
                (*regs.original_frontend(), nft.Lookup(schema.MASQUERADE_FRONTENDS, 0), _ADD),
                (*scratch(regs.original_frontend(), schema.FRONTENDS_CLUSTER_SCOPE), *CLEAR, _ADD),
                (*regs.node_port_endpoint(), nft.Lookup(schema.MASQUERADE_NODEPORTS, 0), _ADD),
                (*regs.node_port_endpoint(), nft.Lookup(schema.LOCAL_POLICY_NODEPORTS, 0), _ADD),
            ),
        ),
        Chain(
            FORWARD_CHAIN,
            ((*_ASSURED_AND_TRANSLATED, to_ours),),
            Hook(HookNumber.FORWARD, BEHIND_ALL_FILTERS, ChainType.FILTER),
        ),
    )
