"""Exempts queries to the node's own DNS process from translation, and datagrams from connection tracking too (pure).

The sets say where the process answers now. An address of the node and a socket bound to it must exist there;
if not, the rule ends, and the query goes where the DNS Service leads.
"""

from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Chain, ChainType, Hook, HookNumber
from nodeagent.proxy.dataplane.program.loads import Loader
from nodeagent.wire.netlink.nf_tables import expressions as nft
from nodeagent.wire.netlink.uapi.rtnetlink import RTN_LOCAL

BEFORE_TRACKING = -300
"""NF_IP_PRI_RAW: before connection tracking (-200), behind the reassembly of fragments (-400)."""
_SYN = 0x02
"""Bit of byte 13 of a TCP header (RFC 9293, 3.1)."""

_AT_THE_NODE: nft.Rule = (nft.FibType(0, source=False), nft.Cmp(0, nft.native_u32(RTN_LOCAL)))
_FOR_A_SOCKET: nft.Rule = (nft.SocketWildcard(0), nft.Cmp(0, b"\0"))
"""Bound to this very address; in the output hook the socket that is found is the sender's."""
_WITHIN_A_CONNECTION: nft.Rule = (
    nft.Meta(0, nft.MetaKey.L4PROTO),
    nft.Cmp(0, bytes((Protocol.TCP,))),
    nft.Payload(0, nft.PayloadBase.TRANSPORT, 13, 1),
    nft.Mask(0, bytes((_SYN,))),
    nft.Cmp(0, b"\0"),
)
"""The socket of a connection that is not accepted yet does not show its address."""
_ARRIVING, _LEAVING = HookNumber.PREROUTING, HookNumber.OUTPUT


def names_chains(family: Family) -> tuple[Chain, ...]:
    """Returns the chains that exempt from connection tracking: queries that are answered here, and their answers."""
    regs = Loader(family)
    query: nft.Rule = (*regs.frontend(), nft.Lookup(schema.DNS_UNTRACKED, 0), *_AT_THE_NODE)
    answer: nft.Rule = (*regs.sender(), nft.Lookup(schema.DNS_REPLIES, 0), nft.Untracked())
    arriving, leaving = (Hook(hook, BEFORE_TRACKING, ChainType.FILTER) for hook in (_ARRIVING, _LEAVING))
    return (
        Chain("names-here", ((*_FOR_A_SOCKET, nft.Untracked()), (*_WITHIN_A_CONNECTION, nft.Untracked()))),
        Chain("prerouting-names", ((*query, nft.Verdict(nft.Code.GOTO, "names-here")),), arriving),
        Chain("output-names", ((*query, nft.Untracked()), answer), leaving),
    )


def answered_in_connections(family: Family, *, arriving: bool) -> nft.Rule:
    """Translates a query to its own destination, so that no other program's rules for addresses of the node take it."""
    regs = Loader(family)
    there = _FOR_A_SOCKET if arriving else ()
    query: nft.Rule = (*regs.frontend(), nft.Lookup(schema.DNS_TRACKED, 0), *_AT_THE_NODE, *there)
    return (*query, regs.destination(0), nft.Dnat(regs.nfproto, 0, None))
