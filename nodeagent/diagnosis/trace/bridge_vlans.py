"""Judges a bridge that filters by VLAN, and a port that is not in the VLAN of the bridge's own frames (pure).

A frame without a tag belongs to the VLAN of the port where it arrives (its PVID), and leaves only through ports in this
VLAN. The bridge itself is such a port for frames of the node.
"""

from nodeagent.wire.netlink.bridges import PortVlans


def barrier(bridge: str, own: PortVlans, port: str, other: PortVlans) -> tuple[str, str]:
    """Returns why frames without a tag do not pass, in either direction, between a node and a host behind a port of its
    bridge, and what to do; empty if they pass. Whether the host accepts tagged frames is not known here."""
    for sender, sent, receiver, received in ((bridge, own, port, other), (port, other, bridge, own)):
        self_ = " self" if sender == bridge else ""
        if not sent.own:
            return (
                f"{sender} has no VLAN for frames without a tag, and the bridge {bridge} filters by VLAN",
                f"bridge vlan add dev {sender} vid NUMBER pvid untagged{self_}",
            )
        if sent.own not in received.allowed:
            return _not_allowed(bridge, sent.own, sender, receiver)
    if other.own not in own.untagged:
        return (
            f"frames of {port} reach {bridge} with the tag of VLAN {other.own}, which {bridge} itself does not take off",
            f"bridge vlan add dev {port} vid {own.own} pvid untagged",
        )
    return "", ""


def _not_allowed(bridge: str, number: int, sender: str, receiver: str) -> tuple[str, str]:
    self_ = " self" if receiver == bridge else ""
    return (
        f"VLAN {number}, in which {sender} sends, is not allowed at {receiver}, and the bridge {bridge} filters by VLAN",
        f"bridge vlan add dev {receiver} vid {number} untagged{self_}, or see bridge vlan show",
    )
