"""Problems for upstream resolvers that do not answer as they should (pure)."""

from collections.abc import Iterator

from nodeagent.model.name_counts import UpstreamCounts, UpstreamFault
from nodeagent.model.problem import Problem
from nodeagent.names.upstream.upstream_fault import FAILING, LOOP, MALFORMED, NO_TCP, SILENT, SLOW

_OTHERS = "names outside the cluster come from other resolvers or not at all"
_ALL = "or change dns.upstreams"
_OF_FAULT = {
    SILENT: (
        "UpstreamDown",
        "does not answer",
        f"{_OTHERS}; see that it runs and can be reached from this node, {_ALL}",
    ),
    LOOP: (
        "UpstreamLoops",
        "sends our own questions back to us",
        f"it is not used: {_OTHERS}; give it other servers than this node, {_ALL}",
    ),
    FAILING: (
        "UpstreamFails",
        "answers {} to every question",
        f"{_OTHERS}; see its log, and whether it reaches the servers that it asks, {_ALL}",
    ),
    SLOW: (
        "UpstreamSlow",
        "takes {} for an answer",
        f"names outside the cluster come late or from other resolvers; see its load and the way to it, {_ALL}",
    ),
    MALFORMED: (
        "UpstreamMalformed",
        "sends messages that are malformed or answer other questions",
        f"they are ignored: {_OTHERS}; see which program answers there, {_ALL}",
    ),
    NO_TCP: (
        "UpstreamNoTcp",
        "does not answer by TCP, although its answers by UDP are cut off",
        f"names with long answers come from other resolvers or not at all; let TCP to it through, {_ALL}",
    ),
}
_REFUSED = f"{_OTHERS}; let it answer queries of this node (its access list), {_ALL}"
UPSTREAM_REASONS = frozenset(reason for reason, _, _ in _OF_FAULT.values())
"""The reasons of problems of one resolver."""


def upstream_problems(counts: UpstreamCounts) -> Iterator[Problem]:
    """Yields a problem for each zone whose resolvers all fail, then one for each fault of a resolver."""
    for zone in counts.unresolved:
        names = "names outside the cluster" if zone == "." else f"names in {zone.rstrip('.')}"
        detail = f"{names} are not resolved: each of their resolvers fails; the problems of the resolvers say why, and what to do"
        yield Problem("DNS", "NoUpstream", detail)
    for fault in counts.faults:
        if fault.kind not in _OF_FAULT:  # the process may have been taken over
            continue
        reason, what, _ = _OF_FAULT[fault.kind]
        yield Problem(
            f"DNS upstream {fault.server}",
            reason,
            f"the resolver {fault.server} {what.format(fault.detail)}{_why(fault)}",
        )


def _why(fault: UpstreamFault) -> str:
    cure = _REFUSED if fault.detail == "REFUSED" else _OF_FAULT[fault.kind][2]
    error = f" ({fault.detail})" if fault.detail and fault.kind in (SILENT, NO_TCP) else ""
    return f"{error}: {cure}"
