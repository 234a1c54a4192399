"""Answers a pod's first search step with the result of its whole search path: two queries instead of eight. Pure.

It walks the path as the pod's resolver would, like CoreDNS's autopath. Names are in wire form.
"""

from collections.abc import Sequence

from nodeagent.wire.dns.codes import CLASS_IN, Rcode, RecordType
from nodeagent.wire.dns.domain_names import LONGEST_NAME, from_text, is_below
from nodeagent.wire.dns.message import Record, Sections


def search_path(namespace: str, zone: str, node_search: Sequence[str]) -> tuple[bytes, ...]:
    """Returns the search domains of a pod, lower-case, as kubelet writes them: the cluster's first, then the node's.

    An invalid search domain of the node is left out. Raises BadName for an invalid namespace or zone.
    """
    cluster = (f"{namespace}.svc.{zone}", f"svc.{zone}", zone)
    domains = [from_text(domain).lower() for domain in cluster]
    for domain in node_search:
        try:
            domains.append(from_text(domain).lower())
        except ValueError:
            continue
    return tuple(dict.fromkeys(domains))


def steps(name: bytes, kind: int, path: Sequence[bytes]) -> tuple[bytes, ...]:
    """Returns the names to try for a query, in order, beginning with the name itself; empty if it is not a search step.

    Only A and AAAA queries for a name below the first search domain are walked, because a resolver asks that one first.
    The last step is the name that the pod's program asked for, without a search domain. Names that would be too long
    are left out.
    """
    first = path[0]
    lower = name.lower()
    if kind not in (RecordType.A, RecordType.AAAA) or lower == first or not is_below(lower, first):
        return ()
    wanted = name[: len(name) - len(first)]
    following = (wanted + domain for domain in (*path[1:], b"\0"))
    return (name, *(step for step in following if len(step) <= LONGEST_NAME))


def is_found(rcode: int) -> bool:
    """Returns whether the walk ends at a step with this rcode. A failure ends it, too: the rest of the path must not
    answer in place of a name that may exist."""
    return rcode != Rcode.NXDOMAIN


def as_first_step(name: bytes, found: Sections, step: bytes) -> Sections:
    """Returns the answer to `name`, made from the answer to `step`: a CNAME to `step` with the TTL of its records.
    Without data there is no CNAME: the answer is NODATA for `name`."""
    if name.lower() == step.lower() or not found.answer:
        return found
    alias = Record(name, RecordType.CNAME, min(record.ttl for record in found.answer), step, CLASS_IN)
    return found._replace(answer=(alias, *found.answer))
