"""Exempts queries to the node's own DNS process from translation, and datagrams from connection tracking too (pure).

The sets say where the process answers now. An address of the node and a socket bound to it must exist there;
if not, the rule ends, and the query goes where the DNS Service leads.
"""

from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Chain, ChainType, Hook, HookNumber
from nodeagent.proxy.dataplane.program.loads import Loader
from nodeagent.wire.netlink.nf_tables.expressions import (
    Cmp,
    Code,
    Dnat,
    FibType,
    Lookup,
    Mask,
    Meta,
    MetaKey,
    Payload,
    PayloadBase,
    Rule,
    SocketWildcard,
    Untracked,
    Verdict,
    native_u32,
)
from nodeagent.wire.netlink.uapi.rtnetlink import RTN_LOCAL

BEFORE_TRACKING = -300
"""NF_IP_PRI_RAW: before connection tracking (-200), behind the reassembly of fragments (-400)."""
_SYN = 0x02
"""Bit of byte 13 of a TCP header (RFC 9293, 3.1)."""

_AT_THE_NODE: Rule = (FibType(0, source=False), Cmp(0, native_u32(RTN_LOCAL)))
_FOR_A_SOCKET: Rule = (SocketWildcard(0), Cmp(0, b"\0"))
"""Bound to this very address; in the output hook the socket that is found is the sender's."""
_WITHIN_A_CONNECTION: Rule = (
    Meta(0, MetaKey.L4PROTO),
    Cmp(0, bytes((Protocol.TCP,))),
    Payload(0, PayloadBase.TRANSPORT, 13, 1),
    Mask(0, bytes((_SYN,))),
    Cmp(0, b"\0"),
)
"""The socket of a connection that is not accepted yet does not show its address."""
_ARRIVING, _LEAVING = HookNumber.PREROUTING, HookNumber.OUTPUT


def names_chains(family: Family) -> tuple[Chain, ...]:
    """Returns the chains that exempt from connection tracking: queries that are answered here, and their answers."""
    regs = Loader(family)
    query: Rule = (*regs.frontend(), Lookup(schema.DNS_UNTRACKED, 0), *_AT_THE_NODE)
    answer: Rule = (*regs.sender(), Lookup(schema.DNS_REPLIES, 0), Untracked())
    arriving, leaving = (Hook(hook, BEFORE_TRACKING, ChainType.FILTER) for hook in (_ARRIVING, _LEAVING))
    return (
        Chain("names-here", ((*_FOR_A_SOCKET, Untracked()), (*_WITHIN_A_CONNECTION, Untracked()))),
        Chain("prerouting-names", ((*query, Verdict(Code.GOTO, "names-here")),), arriving),
        Chain("output-names", ((*query, Untracked()), answer), leaving),
    )


def answered_in_connections(family: Family, *, arriving: bool) -> Rule:
    """Translates a query to its own destination, so that no other program's rules for addresses of the node take it."""
    regs = Loader(family)
    there = _FOR_A_SOCKET if arriving else ()
    query: Rule = (*regs.frontend(), Lookup(schema.DNS_TRACKED, 0), *_AT_THE_NODE, *there)
    return (*query, regs.destination(0), Dnat(regs.nfproto, 0, None))
