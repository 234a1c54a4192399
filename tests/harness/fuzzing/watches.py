"""Lists and watches: events and errors of the Kubernetes API, however the bytes are cut, and something to ask next.

The seeds are recordings of a kube-apiserver.
"""

import json
from itertools import pairwise
from pathlib import Path

from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.proxy.source.client.api_errors import MalformedAnswerError, StatusError, status_error
from nodeagent.proxy.source.decode import ObjectDecoder
from nodeagent.proxy.source.watch import ListWatch, StreamEnd
from nodeagent.proxy.source.watch_events import Event, Failed
from tests.harness.fuzzing.mutation import Target

RECORDINGS = Path(__file__).parents[2] / "contract/recordings"
LISTS = (
    "service-list",
    "service-list-limit-2",
    "service-list-continue",
    "service-missing-404",
    "watch-expired-410-status",
)
WATCHES = ("service-watch", "service-watch-bookmark", "service-watchlist-initial-events", "watch-expired-410-event")
TOKENS = [
    b"[", b"{", b"}", b"]", b'"', b":", b",", b"\n", b"\r\n", b"\\", b"\\ud800", b"\\u0000", b"null", b"-1", b"1e400", b"9" * 30,
    b"\xff", b"\xef\xbb\xbf", b"\x00", b'"type":"ERROR"', b'"type":"DELETED"', b'"type":"BOOKMARK"', b'"object":{}', b'"code":"x"',
    b'"metadata":null', b'"items":null', b'"continue":"x"', b'"resourceVersion":""', b"[" * 2000, b'{"a":' * 2000,
    b'{"type":"ERROR","object":{"kind":"Status","code":-1,"details":{"retryAfterSeconds":-9}}}\n', b"\n\n\n",
]  # fmt: skip


def _recorded(name: str) -> bytes:
    response = json.loads((RECORDINGS / f"{name}.json").read_bytes())["response"]
    events = response.get("events")
    if events is None:
        return json.dumps(response["body"]).encode()
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def _fed(
    kind: type[Service | EndpointSlice], pieces: list[bytes], *, streaming: bool
) -> list[Event[Service | EndpointSlice]]:
    protocol = ListWatch(ObjectDecoder(kind), (("labelSelector", "a"),), streaming=streaming)
    if not streaming:
        protocol.next_request(300)
        list(protocol.receive_page(b'{"metadata":{"resourceVersion":"1"},"items":[]}'))
    protocol.next_request(300)
    reported: list[Event[Service | EndpointSlice]] = []
    for piece in pieces:
        reported += protocol.receive_bytes(piece)
        if reported and isinstance(reported[-1], Failed):
            protocol.refused(reported[-1].error)
            break
    else:
        protocol.stream_ended(StreamEnd.LOST)
    assert protocol.next_request(300).parameters
    return reported


def _spoken(events: list[Event[Service | EndpointSlice]]) -> list[str]:
    """Errors are equal where they say the same. No event has more than a line of what was sent."""
    spoken = [f"{type(event).__name__} {event.error}" if isinstance(event, Failed) else repr(event) for event in events]
    assert not any(isinstance(event, Failed) for event in events[:-1])
    return spoken


def _check_watch(data: bytes) -> None:
    """The same however it is cut: in pieces whose sizes the bytes themselves say, one by one at the end."""
    edges = sorted({0, len(data), *(place for place in range(len(data)) if data[place] % 37 == 0)})
    pieces = [data[start:end] for start, end in pairwise(edges)]
    for kind in (Service, EndpointSlice):
        for streaming in (True, False):
            whole = _spoken(_fed(kind, [data], streaming=streaming))
            assert _spoken(_fed(kind, pieces, streaming=streaming)) == whole


def _check_list(data: bytes) -> None:
    for kind in (Service, EndpointSlice):
        protocol = ListWatch(ObjectDecoder(kind), streaming=False)
        protocol.next_request(300)
        try:
            list(protocol.receive_page(data))
        except MalformedAnswerError as malformed:
            protocol.refused(malformed)
        assert protocol.next_request(300).parameters
    for code in (400, 404, 410, 429, 500):
        error = status_error(code, data, data[:20].decode("latin-1"))
        assert isinstance(error, StatusError)
        assert error.retry_after_seconds is None or 0.1 <= error.retry_after_seconds <= 60


TARGETS = (
    Target("watches", tuple(map(_recorded, WATCHES)), TOKENS, _check_watch),
    Target("lists and refusals", tuple(map(_recorded, LISTS)), TOKENS, _check_list),
)
