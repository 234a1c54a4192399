"""Answers side by side: exactly those that were asked for, all of one size, with an acknowledgement behind them."""

import socket
from collections.abc import Iterator

import pytest

from nodeagent.wire.netlink.equal_answers import EqualAnswers

ACKNOWLEDGEMENT = b"an acknowledgement"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection of datagrams, the second one read."""
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    yield sender, receiver
    sender.close()
    receiver.close()


def received(ends: tuple[socket.socket, socket.socket], *datagrams: bytes, count: int = 2) -> bytes | None:
    sender, receiver = ends
    for datagram in datagrams:
        sender.send(datagram)
    found = EqualAnswers(most=3, size=4).receive(receiver.fileno(), count)
    return None if found is None else bytes(found)


def test_the_answers_lie_side_by_side(ends: tuple[socket.socket, socket.socket]) -> None:
    assert received(ends, b"one.", b"two.", ACKNOWLEDGEMENT) == b"one.two."


def test_there_may_be_fewer_than_fit(ends: tuple[socket.socket, socket.socket]) -> None:
    assert received(ends, b"one.", b"ok", count=1) == b"one."


@pytest.mark.parametrize(
    "datagrams",
    [
        pytest.param([], id="no answer"),
        pytest.param([b"one.", ACKNOWLEDGEMENT], id="an answer too few"),
        pytest.param([b"one.", b"two."], id="no acknowledgement"),
        pytest.param([b"one.", b"two", ACKNOWLEDGEMENT], id="a shorter answer"),
        pytest.param([b"one.", b"longer", ACKNOWLEDGEMENT], id="a longer answer"),
    ],
)
def test_anything_else_is_refused(ends: tuple[socket.socket, socket.socket], datagrams: list[bytes]) -> None:
    assert received(ends, *datagrams) is None


def test_room_is_used_again(ends: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = ends
    answers = EqualAnswers(most=1, size=4)
    for text in (b"one.", b"two."):
        sender.send(text)
        sender.send(ACKNOWLEDGEMENT)
        found = answers.receive(receiver.fileno(), 1)
        assert found is not None
        assert bytes(found) == text
        found.release()
