"""Finds pods of one bridge that cannot find each other, because a rule stops IPv6 neighbour discovery (pure).

br_netfilter passes what goes from one port of a bridge to another to the rules of IPv6, neighbour solicitations too (ARP it does not). They are
not tracked (nf_conntrack_proto_icmpv6.c), so a firewall that lets answers pass does not let them pass.
"""

from collections.abc import Sequence
from ipaddress import IPv6Address

from msgspec import Struct

from nodeagent.diagnosis.simulator.machine import Machine
from nodeagent.diagnosis.simulator.packet import ICMP, Packet
from nodeagent.diagnosis.trace.others import OtherTable
from nodeagent.diagnosis.trace.others_walk import find_stopping_rule
from nodeagent.diagnosis.trace.traveller import Decision, Traveller
from nodeagent.model.addresses import Family, family_of
from nodeagent.proxy.dataplane.program.chain import HookNumber

_SOLICITED = int(IPv6Address("ff02::1:ff00:0"))
_CURES = {
    "firewalld": "firewall-cmd --permanent --zone=trusted --add-interface={0}; firewall-cmd --reload",
    "ufw": "ufw route allow in on {0} out on {0}",
}


class Unfound(Struct, frozen=True):
    """A pod that asks for the link address of another one behind the same bridge, and gets no answer. rule: what stops it."""

    asks: str
    other: str
    bridge: str
    rule: Decision

    def __str__(self) -> str:
        return (
            f"{self.asks} does not find {self.other} behind the bridge {self.bridge}, once it has forgotten its link address: its neighbour "
            f"solicitation is stopped: {self.rule}"
        )

    @property
    def cure(self) -> str:
        """What lets it pass."""
        usual = "let through what goes from {0} to {0}"
        return _CURES.get(self.rule.program, usual).format(self.bridge)


def find_unfound(
    asks: str, other: str, bridge: str, request: Traveller, others: Sequence[OtherTable]
) -> Unfound | None:
    """Returns what a rule certainly keeps from being found; None if it is found, or perhaps. request: a packet between the two."""
    if family_of(other) is not Family.IPV6:
        return None
    group = str(IPv6Address(_SOLICITED | int(IPv6Address(other)) & 0xFFFFFF))
    packet = Packet(asks, group, ICMP[Family.IPV6], iif=bridge)
    machine = Machine(request.machine.sets, packet, (), group, 0, 0, 0, untracked=True)
    traveller = Traveller(packet, machine, bridge, bridge, back=bridge, error=("nd-neighbor-solicit", 0))
    rule = find_stopping_rule(traveller, (HookNumber.PREROUTING, HookNumber.FORWARD, HookNumber.POSTROUTING), others)
    return None if rule is None else Unfound(asks, other, bridge, rule)
