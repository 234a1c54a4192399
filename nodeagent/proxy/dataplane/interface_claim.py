"""Decides whether an interface is ours and may be changed and deleted, or must be left alone (pure).

The mark is the interface's alias, set when it is created. Without it an interface is ours only if it looks exactly like
one that an earlier version created.
"""

from collections.abc import Collection, Sequence

from nodeagent.wire.netlink.rtnetlink import InterfaceAddress, Link

KINDS = ("dummy", "bridge")
"""The kind of the interface: the first of them that the kernel knows."""
MARK = "nodeagent"
"""The alias of every interface that the agent creates (`ip link show`)."""
DEFAULT_NAME = "nodeagent0"
_SHOWN = 3
_LINK_LOCAL_PREFIX_LENGTH = 64


def objection(link: Link, ports: Sequence[str], addresses: Collection[InterfaceAddress]) -> str | None:
    """Returns why an interface must be left alone, as text to follow "it"; None: it is ours.

    ports: the interfaces that are part of it, by name. addresses: what it holds, both families.
    """
    if link.kind not in KINDS:
        return f"is of kind {link.kind or 'hardware'}, not {' or '.join(KINDS)}"
    if ports:
        return f"has the ports {_listed(ports)}"
    return None if link.alias == MARK else _unlike_ours(link, addresses)


def _unlike_ours(link: Link, addresses: Collection[InterfaceAddress]) -> str | None:
    """Returns why an interface without the mark cannot be one of an earlier version; None if it can."""
    if link.master:
        return "is part of another interface"
    foreign = [address for address in addresses if not address.as_ours and not _link_local(address)]
    if foreign:
        shown = [f"{address.address}/{address.prefix_length}" for address in foreign]
        return f"holds {_listed(shown)}, which the agent did not put there"
    if link.name == DEFAULT_NAME or any(address.as_ours for address in addresses):
        return None
    return f"carries neither the alias {MARK!r} nor ClusterIPs, so nothing shows that the agent made it"


def _link_local(address: InterfaceAddress) -> bool:
    """Returns whether the kernel itself added the address, as it does on an interface that is up."""
    return address.address.startswith("fe80:") and address.prefix_length == _LINK_LOCAL_PREFIX_LENGTH


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
