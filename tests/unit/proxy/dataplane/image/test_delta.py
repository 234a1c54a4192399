"""What is written is exactly what differs."""

import pytest

from nodeagent.proxy.dataplane.image.delta import Delta, apply_delta, diff_images, diff_keys
from nodeagent.proxy.dataplane.image.image import TableImage

K, L, M = b"k", b"l", b"m"


@pytest.mark.parametrize(
    ("wanted", "programmed", "puts", "deletes", "touched"),
    [
        pytest.param({"s": {K: b"1"}}, {"s": {K: b"1"}}, {}, {}, 0, id="equal"),
        pytest.param({"s": {K: b"1"}}, {"s": {}}, {"s": {K: b"1"}}, {}, 1, id="new"),
        pytest.param({"s": {}}, {"s": {K: b"1"}}, {}, {"s": [K]}, 1, id="gone"),
        pytest.param({"s": {K: b"2"}}, {"s": {K: b"1"}}, {"s": {K: b"2"}}, {"s": [K]}, 1, id="another value"),
        pytest.param({"s": {K: b""}}, {"s": {L: b""}}, {"s": {K: b""}}, {"s": [L]}, 2, id="another key"),
        pytest.param({"s": {K: b""}}, {}, {"s": {K: b""}}, {}, 1, id="a set nobody knows yet"),
        pytest.param({"s": {}}, {"s": {}, "other": {K: b""}}, {}, {}, 0, id="a set nobody asked about"),
    ],
)
def test_difference(
    wanted: TableImage, programmed: TableImage, puts: TableImage, deletes: dict[str, list[bytes]], touched: int
) -> None:
    delta = diff_images(wanted, programmed)
    assert delta == Delta(puts, deletes)
    assert (delta.touched, delta.empty) == (touched, touched == 0)


def test_only_the_named_keys_are_compared() -> None:
    wanted, programmed = {"s": {K: b"2", L: b"2"}, "t": {M: b""}}, {"s": {K: b"1", L: b"1"}, "t": {}}
    assert diff_keys({"s": {K}}, wanted, programmed) == Delta({"s": {K: b"2"}}, {"s": [K]})
    assert diff_keys({"s": {M}}, wanted, programmed).empty


def test_applying_puts_after_deletes() -> None:
    image: TableImage = {"s": {K: b"1", L: b"1"}}
    apply_delta(image, Delta({"s": {K: b"2"}}, {"s": [K, L, M]}))
    assert image == {"s": {K: b"2"}}
