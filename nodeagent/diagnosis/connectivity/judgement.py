"""Compares what a source saw with what was expected (pure)."""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.diagnosis.connectivity.requests import PodAnswer, RequestResult
from nodeagent.wire.dns.codes import RecordType
from nodeagent.wire.dns.message import BadMessage, read_message
from nodeagent.wire.dns.record_text import data_text

REFUSED = "refused"


class Expected(Struct, frozen=True):
    """What a request must result in.
    servers: the pods that may answer. every: each of them must. one: all answers must come from the same.
    own_address: the pod sees the client's own address. refused: the connection is refused. silent: there is no answer,
    for any reason. addresses: those of a name. targets: the names in the SRV records of an answer."""

    servers: tuple[str, ...] = ()
    every: bool = False
    one: bool = False
    own_address: bool = False
    refused: bool = False
    silent: bool = False
    addresses: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()

    def __str__(self) -> str:
        if self.refused:
            return "the connection is refused"
        if self.silent:
            return "there is no answer, because no endpoint is on that node"
        if self.addresses:
            return f"the name has {_listed(self.addresses)}"
        if self.targets:
            return f"SRV records name {_listed(self.targets)}"
        who = "each of " if self.every else "always the same of " if self.one else ""
        what = f"{who}{' or '.join(self.servers) if not who else _listed(self.servers)} answers"
        return f"{what} and sees the client's own address" if self.own_address else what


def difference(expected: Expected, result: RequestResult) -> str:
    """Returns what happened instead of what was expected; empty if they agree."""
    if expected.addresses:
        return _names_differ(expected.addresses, result.addresses, result.error)
    if expected.targets:
        return _targets_differ(expected.targets, result)
    if expected.silent or expected.refused:
        return _failure_difference(expected, result)
    errors = [answer.error for answer in result.answers if answer.error] or [result.error] * bool(result.error)
    if not errors:
        return _answer_difference(expected, result.answers)
    before = max(0, len(result.answers) - 1)
    return f"{errors[0]} (after {before} that {'were' if before > 1 else 'was'} answered)" if before else errors[0]


def _failure_difference(expected: Expected, result: RequestResult) -> str:
    """Returns what happened instead of the expected failure; empty if it failed. What was not tried has not failed."""
    errors = [answer.error for answer in result.answers if answer.error]
    if not errors:
        return result.error or _who(result.answers)
    return "" if expected.silent or errors == [REFUSED] else errors[0]


def _answer_difference(expected: Expected, answers: Sequence[PodAnswer]) -> str:
    servers = {answer.server for answer in answers}
    if not answers:
        return "there is no result"
    if not servers <= set(expected.servers):
        return _who(answers)
    if expected.every and servers != set(expected.servers):
        return f"only {_listed(servers)} answered {len(answers)} connections"
    if expected.one and len(servers) > 1:
        return _who(answers)
    others = {answer.peer for answer in answers if answer.peer != answer.own}
    if expected.own_address and others:
        return f"the pod saw {_listed(others)} in place of {_listed({answer.own for answer in answers})}"
    return ""


def _names_differ(expected: frozenset[str], found: Sequence[str], error: str) -> str:
    if error or set(found) == expected:
        return error
    return f"the name has {_listed(found) or 'no address'}"


def _targets_differ(expected: frozenset[str], result: RequestResult) -> str:
    if result.error:
        return result.error
    try:
        _, sections = read_message(bytes.fromhex(result.message))
    except (BadMessage, ValueError) as error:
        return f"the answer is not a DNS message: {error}"
    found = {data_text(record).split()[-1] for record in sections.answer if record.kind == RecordType.SRV}
    return "" if found == expected else f"SRV records name {_listed(found) or 'nothing'}"


def _who(answers: Sequence[PodAnswer]) -> str:
    return f"{_listed({answer.server for answer in answers})} answered"


def _listed(words: Sequence[str] | frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(words))
