"""Answering a known pod's first search step by what its whole search path leads to."""

from collections.abc import Sequence
from typing import NamedTuple

from nodeagent.names.autopath import as_first_step, is_found, steps
from nodeagent.names.zone.lookup import Found
from nodeagent.names.zone.prepared_answers import Answers, complete
from nodeagent.wire.dns.codes import HEADER_SIZE, TCP_LIMIT, Rcode
from nodeagent.wire.dns.message import BadMessage, read_message
from nodeagent.wire.dns.query import Query, answer_with


class Walk(NamedTuple):
    """first: the answer to the query itself, NXDOMAIN, which counts if no step is found. steps: those that are left."""

    query: Query
    first: bytes
    steps: tuple[bytes, ...]

    def query_for(self, step: bytes) -> Query:
        """The query for one step of the search path, without EDNS: its answer is not sent to the client as it is."""
        packet = self.query.packet[:4] + b"\0\1\0\0\0\0\0\0" + step + self.query.question[-4:]
        return Query(packet, step, self.query.kind, packet[HEADER_SIZE:], None)

    def end_at(self, step: bytes, response: bytes, limit: int) -> bytes | None:
        """The reply to the query if this response to a step ends the walk; None if it goes on."""
        rcode = response[3] & 0x0F
        if not is_found(rcode):
            return None
        try:
            sections = as_first_step(self.query.name, read_message(response)[1], step)
        except BadMessage:
            return answer_with(self.query, Rcode.SERVFAIL)
        if sections.answer:
            return complete(self.query, Found(b"\0"), sections, rcode, limit)
        if rcode:
            return answer_with(self.query, rcode)
        return self.first[:3] + bytes((self.first[3] & 0xF0,)) + self.first[4:]


def begin_walk(query: Query, first: bytes, path: Sequence[bytes]) -> Walk | None:
    """A walk along a pod's search path; None when the first answer counts: it is found, or the query no search step."""
    if is_found(first[3] & 0x0F) or not path:
        return None
    following = steps(query.name, query.kind, path)[1:]
    return Walk(query, first, following) if following else None


def walk_ours(answers: Answers, walk: Walk, limit: int) -> bytes | Walk:
    """The reply, or the walk from the first step on that cannot be answered from our own names."""
    for index, step in enumerate(walk.steps):
        made = answers.answer(walk.query_for(step), TCP_LIMIT)
        if isinstance(made, Found):
            return walk._replace(steps=walk.steps[index:])
        reply = walk.end_at(step, made, limit)
        if reply is not None:
            return reply
    return walk.first
