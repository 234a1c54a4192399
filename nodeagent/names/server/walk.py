"""Answers a known pod's first search step with the result of its whole search path."""

from collections.abc import Sequence
from typing import NamedTuple

from nodeagent.names.autopath import as_first_step, is_found, steps
from nodeagent.names.zone.lookup import LookupResult
from nodeagent.names.zone.prepared_answers import PreparedAnswers, complete
from nodeagent.wire.dns.codes import HEADER_SIZE, TCP_LIMIT, Rcode
from nodeagent.wire.dns.message import BadMessage, read_message
from nodeagent.wire.dns.query import Query, answer_with


class Walk(NamedTuple):
    """A walk along a search path. first: the answer to the query itself, NXDOMAIN, used if no step is found. steps:
    those that are left."""

    query: Query
    first: bytes
    steps: tuple[bytes, ...]

    def query_for(self, step: bytes) -> Query:
        """Returns the query for one step, without EDNS, because its answer is not sent to the client as it is."""
        packet = self.query.packet[:4] + b"\0\1\0\0\0\0\0\0" + step + self.query.question[-4:]
        return Query(packet, step, self.query.kind, packet[HEADER_SIZE:], None)

    def end_at(self, step: bytes, response: bytes, limit: int) -> bytes | None:
        """Returns the reply to the query if this response to a step ends the walk; None if the walk continues."""
        rcode = response[3] & 0x0F
        if not is_found(rcode):
            return None
        try:
            sections = as_first_step(self.query.name, read_message(response)[1], step)
        except BadMessage:
            return answer_with(self.query, Rcode.SERVFAIL)
        if sections.answer:
            return complete(self.query, LookupResult(b"\0"), sections, rcode, limit)
        if rcode:
            return answer_with(self.query, rcode)
        return self.first[:3] + bytes((self.first[3] & 0xF0,)) + self.first[4:]


def begin_walk(query: Query, first: bytes, path: Sequence[bytes]) -> Walk | None:
    """Returns a walk along a pod's search path; None if the query is not a search step, or its answer not NXDOMAIN."""
    if is_found(first[3] & 0x0F) or not path:
        return None
    following = steps(query.name, query.kind, path)[1:]
    return Walk(query, first, following) if following else None


def walk_ours(answers: PreparedAnswers, walk: Walk, limit: int) -> bytes | Walk:
    """Returns the reply, or the walk that is left from the first step that needs upstream."""
    for index, step in enumerate(walk.steps):
        made = answers.answer(walk.query_for(step), TCP_LIMIT)
        if isinstance(made, LookupResult):
            return walk._replace(steps=walk.steps[index:])
        reply = walk.end_at(step, made, limit)
        if reply is not None:
            return reply
    return walk.first
