"""What the sets of queries for names hold: where the DNS process of this node answers now (pure)."""

from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.model.frontend import NamesHere
from nodeagent.proxy.dataplane.image.image import Elements, class_of, frontend_key
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import pick_class

SETS = (schema.DNS_UNTRACKED, schema.DNS_TRACKED, schema.DNS_REPLIES)


def names_elements(names: NamesHere, frontends: Elements, family: Family) -> dict[str, Elements]:
    """What the sets hold. frontends: those programmed, by which the DNS Service's endpoints are known.

    A query waits in its socket for the process only where no endpoint could answer it meanwhile. Connections are
    tracked where somebody else may have answered before, or may later: they stay with whom they began. The answer to a
    query that was not tracked is not tracked, whatever has become of the sets meanwhile: the node's own programs ask from
    the ClusterIP itself, and there a packet that belongs to nothing is refused.
    """
    found: dict[str, Elements] = {name: {} for name in SETS}
    for address, port in dict.fromkeys((*names.places, *names.former)):
        if family_of(address) is not family:
            continue
        for protocol in (Protocol.UDP, Protocol.TCP):
            key = frontend_key(address, protocol, port)
            served = frontends.get(key)
            tracked = protocol is Protocol.TCP and served is not None
            if not tracked:
                found[schema.DNS_REPLIES][key] = b""
            if (address, port) not in names.places:
                continue
            if names.answering or served is None or pick_class(class_of(served)) is None:
                found[schema.DNS_TRACKED if tracked else schema.DNS_UNTRACKED][key] = b""
    return found
