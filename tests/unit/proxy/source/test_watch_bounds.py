"""What no server may make the protocol keep: bounds on lines, pages, lists and what a watch adds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.objects import Service
from nodeagent.proxy.source import watch
from nodeagent.proxy.source.client.api_errors import (
    OversizedError,
)
from nodeagent.proxy.source.lines import LineSplitter
from nodeagent.proxy.source.watch import (
    LEAST_PAGE_SIZE,
    PAGES_LIMIT,
    THIN_PAGES,
)
from nodeagent.proxy.source.watch_events import Event, Failed, Put
from tests.unit.proxy.source.watching import line, machine, page, spoken, watching


def test_a_list_without_end_is_refused_and_begun_again() -> None:
    protocol = machine()
    for number in range(PAGES_LIMIT):
        assert protocol.next_request(300).starts_list is (number == 0)
        list(protocol.receive_page(page("5", continue_token=str(number))))
    with pytest.raises(OversizedError, match="more than 4000 pages"):
        list(protocol.receive_page(page("5", continue_token="one more")))
    assert protocol.next_request(300).starts_list


@pytest.mark.parametrize(
    ("objects", "paused"), [((), True), (("a",), True), (tuple(f"a{n}" for n in range(LEAST_PAGE_SIZE)), False)]
)
def test_a_list_of_many_thin_pages_is_read_at_leisure(objects: tuple[str, ...], *, paused: bool) -> None:
    protocol = machine()
    protocol.next_request(300)
    for number in range(THIN_PAGES):
        list(protocol.receive_page(page("5", *objects, continue_token=str(number))))
        assert protocol.pause_seconds == 0
    list(protocol.receive_page(page("5", *objects, continue_token="one more")))
    assert (protocol.pause_seconds > 0) is paused
    list(protocol.receive_page(page("5", *objects)))
    assert protocol.pause_seconds == 0


@pytest.mark.parametrize("streaming", [False, True])
def test_more_objects_than_any_cluster_has_are_refused(streaming: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "OBJECTS_LIMIT", 3)
    protocol = machine(streaming=streaming)
    protocol.next_request(300)
    if streaming:
        *_, last = protocol.receive_bytes(b"".join(line("ADDED", f"a{number}") for number in range(5)))
        assert isinstance(last, Failed)
        assert isinstance(last.error, OversizedError)
    else:
        with pytest.raises(OversizedError, match="more than 3 objects"):
            list(protocol.receive_page(page("5", "a", "b", "c", "d")))
    assert protocol.next_request(300).starts_list
    assert not protocol.is_complete


def test_a_watch_that_adds_objects_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "OBJECTS_LIMIT", 3)
    protocol = watching("5")
    for round_ in range(10):  # as many as there may be, again and again, and again after they have gone
        for name in "abc":
            assert spoken(protocol.receive_bytes(line("ADDED", name, str(round_)))) != []
        if round_ % 2 == 0:
            protocol.receive_bytes(b"".join(line("DELETED", name) for name in "abc"))
    (failed,) = protocol.receive_bytes(line("MODIFIED", "d"))
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, OversizedError)
    assert str(failed.error) == "a watch of more than 3 objects"
    assert protocol.next_request(300).starts_list


def test_objects_that_a_watch_puts_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BYTES_LIMIT", 1 << 20)
    big = {"annotations": {"note": "x" * 400_000}}
    protocol = watching("5")

    def put(name: str) -> list[Event[Service]]:
        obj = {"metadata": {"name": name, "resourceVersion": "7", **big}}
        return protocol.receive_bytes(json.dumps({"type": "MODIFIED", "object": obj}).encode() + b"\n")

    for _ in range(5):
        assert isinstance(put("a")[0], Put)
        assert isinstance(put("b")[0], Put)
    (failed,) = put("c")
    assert isinstance(failed, Failed)
    assert str(failed.error) == "a watch of more than 1 MiB"


def test_the_bytes_of_a_list_are_bounded_over_all_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BYTES_LIMIT", 1 << 20)
    protocol = machine()
    protocol.next_request(300)
    bulky = page("5", "a", continue_token="x").ljust(600_000)
    list(protocol.receive_page(bulky))
    with pytest.raises(OversizedError, match="a list of more than 1 MiB"):
        list(protocol.receive_page(page("5", "b", continue_token="y").ljust(600_000)))
    assert protocol.next_request(300).starts_list


def test_a_line_without_end_is_refused() -> None:
    splitter = LineSplitter(limit_bytes=1000)
    assert splitter.feed(b"x" * 900 + b"\n" + b"y" * 900) == [b"x" * 900]
    with pytest.raises(OversizedError):
        splitter.feed(b"y" * 200)
    protocol = watching()
    protocol.next_request(300)
    (failed,) = protocol.receive_bytes(b"z" * (17 << 20))
    assert isinstance(failed, Failed)
    assert protocol.next_request(300).starts_list


@given(st.binary(max_size=300))
def test_no_bytes_are_beyond_the_protocol(data: bytes) -> None:
    protocol = watching()
    protocol.next_request(300)
    protocol.receive_bytes(data + b"\n")
    protocol.next_request(300)


def test_a_long_line_in_small_pieces_is_put_together_once() -> None:
    splitter = LineSplitter()
    whole = b"x" * 5_000_000
    for start in range(0, len(whole), 1000):
        assert splitter.feed(whole[start : start + 1000]) == []
    assert splitter.feed(b"\n\nnext") == [whole]
    assert splitter.feed(b"\n") == [b"next"]
