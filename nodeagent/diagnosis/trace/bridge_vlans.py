"""A bridge that filters by VLAN, and a port that is not in the VLAN of the bridge's own frames (pure).

A frame without a tag is of the VLAN of the port that it comes in by (its PVID), and leaves by ports that are in this VLAN only. For
frames of the node the bridge itself is such a port.
"""

from nodeagent.wire.netlink.bridges import PortVlans


def barrier(bridge: str, own: PortVlans, port: str, other: PortVlans) -> tuple[str, str]:
    """Why frames without a tag do not pass between a node and a host behind a port of its bridge, in either direction, and what to do;
    empty where they may. A host that takes tagged frames is nothing that is known here."""
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
