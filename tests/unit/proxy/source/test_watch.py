"""The list/watch protocol: answers in, requests and events out. No connection, no clock."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.proxy.source.client.api_errors import (
    ExpiredError,
    ForbiddenError,
    KubeError,
    MalformedAnswerError,
    NotServedError,
    NotYetReachedError,
    OversizedError,
    RejectedError,
    ServerFailedError,
    ServerUnreachableError,
    ThrottledError,
    UnauthorizedError,
    status_error,
)
from nodeagent.proxy.source.watch import (
    LOST_STREAMS_LIMIT,
    NOT_YET_REACHED_LIMIT,
    Retry,
    StreamEnd,
)
from nodeagent.proxy.source.watch_events import Listed
from tests.unit.proxy.source.watching import (
    SELECTORS,
    asked,
    bookmark,
    error_line,
    line,
    machine,
    page,
    spoken,
    watching,
)


def test_a_full_list_comes_in_pages_and_ends_where_the_watch_begins() -> None:
    protocol = machine()
    first = protocol.next_request(300)
    assert (first.stream, first.starts_list) == (False, True)
    assert dict(first.parameters) == {
        "labelSelector": "!a",
        "fieldSelector": "b!=c",
        "limit": "500",
        "resourceVersion": "0",
    }
    assert spoken(protocol.receive_page(page("5", "a", continue_token="next"))) == ["listed a"]
    second = protocol.next_request(300)
    assert (second.starts_list, dict(second.parameters)["continue"]) == (False, "next")
    assert spoken(protocol.receive_page(page("5", "b"))) == ["listed b", "completed 5"]
    watch = protocol.next_request(333)
    assert watch.stream
    assert dict(watch.parameters) == {
        "labelSelector": "!a",
        "fieldSelector": "b!=c",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "333",
        "resourceVersion": "5",
    }


def test_a_streaming_list_goes_on_as_the_watch() -> None:
    protocol = machine(streaming=True)
    request = protocol.next_request(300)
    assert (request.stream, request.starts_list, request.awaits_initial_state) == (True, True, True)
    parameters = dict(request.parameters)
    assert parameters["sendInitialEvents"] == "true"
    assert parameters["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in parameters
    stream = (
        line("ADDED", "a", "90") + line("ADDED", "b", "3") + bookmark("91") + line("DELETED", "a", "92")
        + bookmark("95", ends_initial=True) + line("MODIFIED", "b", "97") + line("DELETED", "b", "98")
    )  # fmt: skip
    assert spoken(protocol.receive_bytes(stream)) == [
        "listed a", "listed b", "unlisted demo/a", "completed 95", "put b", "gone demo/b",
    ]  # fmt: skip
    assert asked(protocol)["resourceVersion"] == "98"


@pytest.mark.parametrize(
    ("stream", "version"),
    [
        pytest.param(b"", "5", id="nothing happened"),
        pytest.param(line("ADDED", version="6"), "6", id="an event"),
        pytest.param(bookmark("9"), "9", id="a bookmark"),
        pytest.param(line("DELETED", version="8"), "8", id="a deletion has a version of its own"),
        pytest.param(line("MODIFIED", version="6", spec={"ports": 7}), "6", id="an undecodable object"),
        pytest.param(line("INVENTED", version="6"), "5", id="an unknown event"),
        pytest.param(line("ADDED", version="6")[:-1], "5", id="a line cut off before its end"),
    ],
)
def test_a_watch_that_ended_goes_on_from_the_last_version_without_a_list(stream: bytes, version: str) -> None:
    protocol = watching()
    protocol.next_request(300)
    protocol.receive_bytes(stream)
    assert protocol.stream_ended(StreamEnd.CLOSED) is Retry.AT_ONCE
    request = protocol.next_request(300)
    assert (request.stream, request.starts_list) == (True, False)
    assert dict(request.parameters)["resourceVersion"] == version


def test_a_line_cut_off_by_a_lost_connection_does_not_spoil_the_next_watch() -> None:
    protocol = watching()
    protocol.next_request(300)
    protocol.receive_bytes(line("ADDED", "a")[:20])
    assert protocol.stream_ended(StreamEnd.LOST) is Retry.BACK_OFF
    protocol.next_request(300)
    assert spoken(protocol.receive_bytes(line("ADDED", "a"))) == ["put a"]


@pytest.mark.parametrize(
    ("error", "starts_list"),
    [
        pytest.param(error_line(410, "Expired", "too old resource version: 5 (154)"), True, id="410 Expired"),
        pytest.param(error_line(410, "Gone"), True, id="410 Gone"),
        pytest.param(error_line(500, "InternalError", "etcdserver: mvcc: compacted"), True, id="500"),
        pytest.param(error_line(0), True, id="no code"),
        pytest.param(b"<html>\n", True, id="not JSON"),
        pytest.param(b'{"kind":"Status"}\n', True, id="not an event"),
        pytest.param(error_line(429, "TooManyRequests"), False, id="429"),
        pytest.param(error_line(403, "Forbidden"), False, id="403"),
        pytest.param(
            error_line(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}]), False, id="504 too large"
        ),
    ],
)
def test_an_error_event_ends_the_watch_and_what_it_means_decides_whether_to_list(
    error: bytes, starts_list: bool
) -> None:
    protocol = watching()
    protocol.next_request(300)
    events = spoken(protocol.receive_bytes(line("ADDED", "a", "6") + error + line("ADDED", "b", "7")))
    assert events[0] == "put a"
    assert events[1].startswith("failed ")
    assert len(events) == 2
    assert protocol.next_request(300).starts_list is starts_list


@pytest.mark.parametrize(
    ("refusal", "retry", "starts_list"),
    [
        pytest.param(ExpiredError(410, ""), Retry.BACK_OFF, True, id="410"),
        pytest.param(NotYetReachedError(504, ""), Retry.BACK_OFF, False, id="504 too large"),
        pytest.param(ServerFailedError(503, ""), Retry.BACK_OFF, False, id="503"),
        pytest.param(ThrottledError(429, ""), Retry.BACK_OFF, False, id="429"),
        pytest.param(UnauthorizedError(401, ""), Retry.BACK_OFF, False, id="401"),
        pytest.param(ForbiddenError(403, ""), Retry.BACK_OFF, False, id="403"),
        pytest.param(NotServedError(404, ""), Retry.BACK_OFF, True, id="404: the resource went away"),
        pytest.param(ServerUnreachableError(""), Retry.BACK_OFF, False, id="no connection"),
        pytest.param(RejectedError(400, "field label not supported: b"), Retry.AT_ONCE, True, id="400: the selector"),
        pytest.param(RejectedError(400, "bad gateway"), Retry.BACK_OFF, False, id="400 that says nothing of selectors"),
    ],
)
def test_a_refused_watch(refusal: KubeError, retry: Retry, starts_list: bool) -> None:
    protocol = watching()
    protocol.next_request(300)
    assert protocol.refused(refusal) is retry
    assert protocol.next_request(300).starts_list is starts_list


def test_a_server_that_stays_behind_our_version_has_lost_its_history() -> None:
    protocol = watching()
    waits = []
    for _ in range(NOT_YET_REACHED_LIMIT):
        request = protocol.next_request(300)
        assert not request.starts_list
        waits.append(protocol.refused(NotYetReachedError(504, "")))
    assert waits == [*[Retry.BACK_OFF] * (NOT_YET_REACHED_LIMIT - 1), Retry.AT_ONCE]
    assert protocol.next_request(300).starts_list


@pytest.mark.parametrize(
    "refusal", [pytest.param(ExpiredError(410, ""), id="410"), pytest.param(RejectedError(400, ""), id="400")]
)
def test_a_continue_token_that_expired_leads_to_a_list_in_one_piece(refusal: KubeError) -> None:
    protocol = machine()
    protocol.next_request(300)
    list(protocol.receive_page(page("5", "a", continue_token="next")))
    protocol.next_request(300)
    protocol.refused(refusal)
    request = protocol.next_request(300)
    assert request.starts_list
    assert dict(request.parameters) == dict(SELECTORS)
    list(protocol.receive_page(page("6", "a", "b")))
    protocol.refused(ExpiredError(410, ""))
    assert asked(protocol)["limit"] == "500"


def test_a_page_lost_on_the_way_is_asked_for_again() -> None:
    protocol = machine()
    protocol.next_request(300)
    list(protocol.receive_page(page("5", "a", continue_token="next")))
    protocol.next_request(300)
    assert protocol.refused(ServerUnreachableError("")) is Retry.BACK_OFF
    assert asked(protocol)["continue"] == "next"


def test_refused_selectors_are_given_up_one_by_one() -> None:
    protocol = machine()
    seen = []
    for _ in range(3):
        seen.append(sorted(set(asked(protocol)) & {"labelSelector", "fieldSelector"}))
        last = protocol.refused(RejectedError(400, "field label not supported: b"))
    assert seen == [["fieldSelector", "labelSelector"], ["labelSelector"], []]
    assert last is Retry.BACK_OFF


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(RejectedError(422, "sendInitialEvents is forbidden"), id="422 of a server with the gate off"),
        pytest.param(RejectedError(400, ""), id="400"),
        pytest.param(NotServedError(404, ""), id="404"),
        pytest.param(ExpiredError(410, ""), id="410"),
        pytest.param(ServerFailedError(501, ""), id="501"),
    ],
)
def test_a_server_that_will_not_stream_is_asked_for_pages_from_then_on(refusal: KubeError) -> None:
    protocol = machine(streaming=True)
    protocol.next_request(300)
    assert protocol.refused(refusal) is Retry.AT_ONCE
    assert asked(protocol) == {**dict(SELECTORS), "limit": "500", "resourceVersion": "0"}
    list(protocol.receive_page(page("5", "a")))
    protocol.refused(ExpiredError(410, ""))
    assert asked(protocol) == {**dict(SELECTORS), "limit": "500"}


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(ServerUnreachableError(""), id="no connection"),
        pytest.param(ServerFailedError(503, ""), id="503"),
        pytest.param(ThrottledError(429, ""), id="429"),
        pytest.param(UnauthorizedError(401, ""), id="401"),
    ],
)
def test_a_temporary_error_does_not_rule_out_streaming(trouble: KubeError) -> None:
    protocol = machine(streaming=True)
    for _ in range(10):
        assert asked(protocol)["sendInitialEvents"] == "true"
        assert protocol.refused(trouble) is Retry.BACK_OFF


@pytest.mark.parametrize(
    "stream", [pytest.param(error_line(400, "BadRequest"), id="400"), pytest.param(error_line(500), id="500")]
)
def test_an_error_event_instead_of_the_initial_state_leads_to_pages(stream: bytes) -> None:
    protocol = machine(streaming=True)
    protocol.next_request(300)
    assert spoken(protocol.receive_bytes(line("ADDED", "a") + stream))[-1].startswith("failed")
    assert asked(protocol)["limit"] == "500"


@pytest.mark.parametrize(
    ("end", "attempts"),
    [
        pytest.param(StreamEnd.CLOSED, 1, id="closed in order"),
        pytest.param(StreamEnd.SILENT, 1, id="silent: the server does not know the closing bookmark"),
        pytest.param(StreamEnd.LOST, LOST_STREAMS_LIMIT, id="lost again and again"),
    ],
)
def test_an_initial_state_that_never_completes_leads_to_pages(end: StreamEnd, attempts: int) -> None:
    protocol = machine(streaming=True)
    for _ in range(attempts):
        assert "sendInitialEvents" in asked(protocol)
        protocol.receive_bytes(line("ADDED", "a"))
        retry = protocol.stream_ended(end)
    assert retry is Retry.AT_ONCE
    assert asked(protocol)["limit"] == "500"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>502</html>", id="a proxy's error page"),
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"metadata":{},"items":[]}', id="a list without a version"),
        pytest.param(page("5", "a")[:-9], id="cut off"),
        pytest.param(b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[]}', id="of another kind"),
        pytest.param(b"[" * 100_000, id="nested without end"),
    ],
)
def test_a_body_that_is_no_list_changes_nothing(body: bytes) -> None:
    protocol = machine()
    before = protocol.next_request(300)
    with pytest.raises(MalformedAnswerError):
        list(protocol.receive_page(body))
    assert protocol.next_request(300) == before


def test_a_page_that_continues_with_itself_is_refused() -> None:
    protocol = machine()
    protocol.next_request(300)
    list(protocol.receive_page(page("5", "a", continue_token="again")))
    protocol.next_request(300)
    with pytest.raises(MalformedAnswerError):
        list(protocol.receive_page(page("5", "b", continue_token="again")))


def test_one_bad_item_of_a_list_spoils_only_itself() -> None:
    good = {"metadata": {"name": "web", "namespace": "demo"}}
    bad = {"metadata": {"name": "bad", "namespace": "demo"}, "spec": {"ports": [{"port": "http"}]}}
    body = json.dumps({"metadata": {"resourceVersion": "5"}, "items": [good, bad, {"metadata": {}}, 7, good]}).encode()
    events = list(machine().receive_page(body))
    assert spoken(events) == ["listed web web not demo/bad not None not None", "completed 5"]
    assert isinstance(events[0], Listed)
    assert str(events[0].undecodable[0].problem("Service")) == (
        "Service demo/bad: Undecodable: ignored: Expected `int`, got `str` - at `$.spec.ports[0].port`"
    )


def test_a_deletion_needs_no_more_than_a_name() -> None:
    protocol = watching()
    protocol.next_request(300)
    assert spoken(protocol.receive_bytes(line("DELETED", "a", spec="nonsense"))) == ["gone demo/a"]


@pytest.mark.parametrize(
    ("body", "header", "error_class", "retry_after_seconds"),
    [
        pytest.param(b"", None, ServerFailedError, None, id="empty body"),
        pytest.param(b"busy", "7", ServerFailedError, 7.0, id="header"),
        pytest.param(b"busy", "Wed, 21 Oct 2026 07:28:00 GMT", ServerFailedError, None, id="a date is not used"),
        pytest.param(b'{"details":{"retryAfterSeconds":3}}', None, ServerFailedError, 3.0, id="in the Status"),
        pytest.param(b"busy", "99999999999999999999", ServerFailedError, 60.0, id="for ever is a minute"),
        pytest.param(b"busy", "0", ServerFailedError, 0.1, id="at once is a moment"),
        pytest.param(b"busy", "-5", ServerFailedError, None, id="a header below zero is ignored"),
        pytest.param(b'{"details":{"retryAfterSeconds":-9}}', None, ServerFailedError, 0.1, id="below zero"),
        pytest.param(b'{"details":{"retryAfterSeconds":999999}}', None, ServerFailedError, 60.0, id="far too long"),
        pytest.param(b'{"reason":"Expired"}', None, ExpiredError, None, id="the reason outweighs the code"),
        pytest.param(
            b'{"message":"Too large resource version: 9, current: 5"}', None, NotYetReachedError, None, id="old"
        ),
    ],
)
def test_an_error_answer_is_described(
    body: bytes, header: str | None, error_class: type[KubeError], retry_after_seconds: float | None
) -> None:
    error = status_error(504, body, header)
    assert (type(error), error.retry_after_seconds) == (error_class, retry_after_seconds)


EVENTS = st.lists(
    st.one_of(
        st.builds(
            line, st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.sampled_from("abc"), st.sampled_from("678")
        ),
        st.builds(bookmark, st.sampled_from("678")),
        st.just(bookmark("9", ends_initial=True)),
        st.just(b"\n"),
        st.just(error_line(410, "Expired")),
        st.just(error_line(504, message="Too large resource version")),
        st.binary(max_size=20),
    ),
    max_size=12,
)


@given(stream=EVENTS.map(b"".join), cuts=st.lists(st.integers(0, 2000), max_size=20), streaming=st.booleans())
def test_any_chunking_of_a_stream_gives_the_same_events(stream: bytes, cuts: list[int], streaming: bool) -> None:
    def events(pieces: list[bytes]) -> tuple[list[str], object]:
        protocol = machine(streaming=True) if streaming else watching()
        protocol.next_request(300)
        seen: list[str] = []
        for piece in pieces:
            seen += spoken(protocol.receive_bytes(piece))
            if seen and seen[-1].startswith("failed"):
                break
        return seen, protocol.next_request(300)

    edges = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert events(pieces) == events([stream])


def test_a_cache_answers_the_first_list_and_only_that() -> None:
    """Every node's agent starts again after an upgrade; nothing that was seen may be unseen after that."""
    protocol = machine()
    assert asked(protocol)["resourceVersion"] == "0"
    protocol.refused(ServerUnreachableError(""))
    assert asked(protocol)["resourceVersion"] == "0"
    list(protocol.receive_page(page("5", "web")))
    protocol.refused(ExpiredError(410, ""))
    assert "resourceVersion" not in asked(protocol)


def test_a_cached_list_that_is_too_long_is_asked_for_in_pages() -> None:
    protocol = machine()
    protocol.next_request(300)
    protocol.refused(OversizedError(""))
    assert asked(protocol) == {**dict(SELECTORS), "limit": "500"}
