"""The elements of the sets for DNS queries: where the DNS process of this node answers now (pure)."""

from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.model.frontend import NamesHere
from nodeagent.proxy.dataplane.image.image import Elements, class_of, frontend_key
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import pick_class

SETS = (schema.DNS_UNTRACKED, schema.DNS_TRACKED, schema.DNS_REPLIES)


def names_elements(names: NamesHere, frontends: Elements, family: Family) -> dict[str, Elements]:
    """Returns the elements by set. frontends: those programmed, by which the DNS Service's endpoints are known.

    While the process does not answer, queries wait in its socket only if no endpoint can answer them. Connections are tracked if an
    endpoint may have answered before, or may later: they stay with the server they began with. The answer to an untracked query is
    not tracked, even if the sets changed meanwhile: the node's own programs ask from the ClusterIP itself, and there a packet that
    belongs to no connection is refused.
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
