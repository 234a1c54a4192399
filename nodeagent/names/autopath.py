"""Answering a pod's first search step with what its search path leads to: two queries instead of eight. Pure.

The same walk that the pod's resolver would do, as CoreDNS's autopath does it. Names are in wire form.
"""

from collections.abc import Sequence

from nodeagent.wire.dns.codes import CLASS_IN, Rcode, RecordType
from nodeagent.wire.dns.domain_names import LONGEST_NAME, from_text, is_below
from nodeagent.wire.dns.message import Record, Sections


def search_path(namespace: str, zone: str, node_search: Sequence[str]) -> tuple[bytes, ...]:
    """The search domains of a pod, lower-case, as kubelet writes them: the cluster's first, then the node's.

    Raises BadName for an invalid namespace or zone; an invalid search domain of the node is left out.
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
    """The names to try for a query, in order; the name as asked is the first. Empty when it is no search step.

    Only A and AAAA queries for a name below the first search domain are walked: a resolver asks that one first. The
    last step is what the pod's program asked for, without a search domain. Names that would be too long are left out.
    """
    first = path[0]
    lower = name.lower()
    if kind not in (RecordType.A, RecordType.AAAA) or lower == first or not is_below(lower, first):
        return ()
    wanted = name[: len(name) - len(first)]
    following = (wanted + domain for domain in (*path[1:], b"\0"))
    return (name, *(step for step in following if len(step) <= LONGEST_NAME))


def is_found(rcode: int) -> bool:
    """Whether the walk ends at a step with this answer. A failure ends it, too: the rest of the path must not answer
    in place of a name that may exist."""
    return rcode != Rcode.NXDOMAIN


def as_first_step(name: bytes, found: Sections, step: bytes) -> Sections:
    """The answer to `name` from the answer to `step`: a CNAME leads there, with the TTL of what it leads to.

    Without data there is no CNAME: NODATA for the name asked for.
    """
    if name.lower() == step.lower() or not found.answer:
        return found
    alias = Record(name, RecordType.CNAME, min(record.ttl for record in found.answer), step, CLASS_IN)
    return found._replace(answer=(alias, *found.answer))
