"""An upstream without servers, for tests of the server's other parts."""

from nodeagent.model.name_counts import UpstreamCounts
from nodeagent.names.shares import Client
from nodeagent.wire.dns.codes import Rcode
from nodeagent.wire.dns.query import answer_with, read_query


class NoUpstream:
    """An upstream without servers: names outside our zones are refused."""

    async def run(self) -> None:
        """Returns at once: there is no background work."""

    async def resolve(self, query: bytes, client: Client) -> bytes:  # it is an Upstream
        """Returns REFUSED."""
        return answer_with(read_query(query), Rcode.REFUSED)

    def figures(self) -> UpstreamCounts:
        """Returns counts that are all 0."""
        return UpstreamCounts()
