"""What a source saw, beside what must be."""

import pytest

from nodeagent.diagnosis.connectivity.judgement import Expected, difference
from nodeagent.diagnosis.connectivity.name_cases import query_message
from nodeagent.diagnosis.connectivity.requests import PodAnswer, RequestResult
from nodeagent.wire.dns.codes import RecordType
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.message import Record, Sections
from tests.harness.dns.written_message import write


def answered(*servers: str, peer: str = "10.244.1.2", own: str = "10.244.1.2") -> RequestResult:
    return RequestResult(answers=tuple(PodAnswer(server, peer, own) for server in servers))


def failed(error: str, before: int = 0) -> RequestResult:
    return RequestResult(answers=(*(PodAnswer("a", "1", "1") for _ in range(before)), PodAnswer(error=error)))


A_OR_B = ("a", "b")


@pytest.mark.parametrize(
    ("expected", "result", "happened"),
    [
        pytest.param(Expected(("a",)), answered("a", "a"), "", id="the one that may answer"),
        pytest.param(Expected(("a",)), answered("a", "b"), "a, b answered", id="another one"),
        pytest.param(Expected(A_OR_B), answered("b"), "", id="one of two"),
        pytest.param(Expected(("a",)), failed("refused"), "refused", id="refused"),
        pytest.param(
            Expected(("a",)), failed("refused", 2), "refused (after 2 that were answered)", id="refused now and then"
        ),
        pytest.param(Expected(("a",)), RequestResult(error="no result"), "no result", id="not asked"),
        pytest.param(Expected(("a",)), RequestResult(), "there is no result", id="nothing at all"),
        pytest.param(Expected(A_OR_B, every=True), answered("a", "b", "a"), "", id="each of two"),
        pytest.param(
            Expected(A_OR_B, every=True), answered("a", "a"), "only a answered 2 connections", id="never the other"
        ),
        pytest.param(Expected(A_OR_B, one=True), answered("b", "b"), "", id="bound"),
        pytest.param(Expected(A_OR_B, one=True), answered("b", "a"), "a, b answered", id="not bound"),
        pytest.param(Expected(("a",), own_address=True), answered("a"), "", id="own address"),
        pytest.param(
            Expected(("a",), own_address=True),
            answered("a", peer="192.0.2.1"),
            "the pod saw 192.0.2.1 in place of 10.244.1.2",
            id="another address",
        ),
        pytest.param(Expected(("a",)), answered("a", peer="192.0.2.1"), "", id="another address, which nobody minds"),
        pytest.param(Expected(refused=True), failed("refused"), "", id="refused, as it must be"),
        pytest.param(Expected(refused=True), failed("no answer in 5 s"), "no answer in 5 s", id="dropped"),
        pytest.param(Expected(refused=True), answered("a"), "a answered", id="not refused"),
        pytest.param(Expected(refused=True), RequestResult(error="not run"), "not run", id="refusal not looked for"),
        pytest.param(Expected(silent=True), failed("no answer in 5 s"), "", id="silent"),
        pytest.param(Expected(silent=True), answered("a"), "a answered", id="not silent"),
        pytest.param(Expected(silent=True), RequestResult(error="not run"), "not run", id="silence not looked for"),
        pytest.param(
            Expected(addresses=frozenset({"1", "2"})), RequestResult(addresses=("2", "1")), "", id="addresses of a name"
        ),
        pytest.param(
            Expected(addresses=frozenset({"1", "2"})), RequestResult(addresses=("1",)), "the name has 1", id="too few"
        ),
        pytest.param(
            Expected(addresses=frozenset({"1"})), RequestResult(error="unknown"), "unknown", id="unknown name"
        ),
    ],
)
def test_each_result_is_compared_with_the_expectation(expected: Expected, result: RequestResult, happened: str) -> None:
    assert difference(expected, result) == happened


def srv_answer(target: str) -> str:
    question = query_message("_tcp._tcp.web.shop.svc.cluster.local.", RecordType.SRV)[12:]
    data = b"\0\0\0\x64\0\x50" + from_text(target)
    record = Record(from_text("_tcp._tcp.web.shop.svc.cluster.local."), RecordType.SRV, 30, data)
    return write(b"\x4e\x41\x81\x80", question, Sections(answer=(record,))).hex()


@pytest.mark.parametrize(
    ("message", "happened"),
    [
        (srv_answer("web.shop.svc.cluster.local."), ""),
        (srv_answer("other.shop.svc.cluster.local."), "SRV records name other.shop.svc.cluster.local."),
        ("4e41", "the answer is not a DNS message: shorter than a header"),
        ("", "the answer is not a DNS message: shorter than a header"),
    ],
    ids=["right", "another target", "cut off", "empty"],
)
def test_srv_records(message: str, happened: str) -> None:
    expected = Expected(targets=frozenset({"web.shop.svc.cluster.local."}))

    assert difference(expected, RequestResult(message=message)) == happened


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (Expected(("a",)), "a answers"),
        (Expected(A_OR_B), "a or b answers"),
        (Expected(A_OR_B, every=True), "each of a, b answers"),
        (Expected(A_OR_B, one=True), "always the same of a, b answers"),
        (Expected(("a",), own_address=True), "a answers and sees the client's own address"),
        (Expected(refused=True), "the connection is refused"),
        (Expected(silent=True), "there is no answer, because no endpoint is on that node"),
        (Expected(addresses=frozenset({"2", "1"})), "the name has 1, 2"),
        (Expected(targets=frozenset({"x."})), "SRV records name x."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_expectation_as_text(expected: Expected, text: str) -> None:
    assert str(expected) == text
