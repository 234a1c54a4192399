"""Problems for upstream resolvers that do not answer (pure)."""

from collections.abc import Iterator

from nodeagent.model.name_counts import UpstreamCounts
from nodeagent.model.problem import Problem

UPSTREAM_DOWN = "UpstreamDown"
"""The reason of these problems."""


def upstream_problems(counts: UpstreamCounts) -> Iterator[Problem]:
    """Yields one problem for each resolver that does not answer at present."""
    for server in counts.down:
        detail = (
            f"the resolver {server} does not answer: names outside the cluster come from other resolvers or not at all; "
            "see that it runs and can be reached from this node, or change dns.upstreams"
        )
        yield Problem(f"DNS upstream {server}", UPSTREAM_DOWN, detail)
