"""How a connection is typed."""

import pytest

from nodeagent.diagnosis.trace.question import Question, parse_question
from nodeagent.model.addresses import Protocol


@pytest.mark.parametrize(
    "words",
    [
        ("10.244.1.5", "->", "10.96.0.10:80"),
        ("10.244.1.5", "10.96.0.10:80/tcp"),
        ("10.244.1.5->10.96.0.10:80",),
        ("10.244.1.05 -> 10.96.0.10:80/TCP",),
        ("10.244.1.5", "to", "10.96.0.10:80"),
    ],
)
def test_an_arrow_and_a_protocol_may_be_left_out(words: tuple[str, ...]) -> None:
    assert parse_question(words) == Question("10.244.1.5", "10.96.0.10", 80, Protocol.TCP)


def test_ipv6_has_brackets_as_in_urls() -> None:
    asked = parse_question(["fd00:244:1:0::5", "->", "[fd00:10:96::10]:53/udp"])
    assert asked == Question("fd00:244:1::5", "fd00:10:96::10", 53, Protocol.UDP)
    assert parse_question([str(asked)]) == asked


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "is not a connection"),
        (("10.96.0.10:80",), "is not a connection"),
        (("a", "b", "c"), "is not a connection"),
        (("web", "->", "10.96.0.10:80"), "'web' is not an address"),
        (("10.244.1.5", "10.96.0.10"), "is not an address and a port"),
        (("10.244.1.5", "10.96.0.10:0"), "is not a port"),
        (("10.244.1.5", "10.96.0.10:http"), "is not a port"),
        (("10.244.1.5", "10.96.0.10:65536"), "is not a port"),
        (("10.244.1.5", "10.96.0.10:80/icmp"), "is not a protocol"),
        (("10.244.1.5", "[fd00::1]:80"), "different families"),
        (("fd00::1", "fd00::2:80"), r"where its port begins is unclear: write \[fd00::2\]:80"),
        (("fd00::1", "->", "fd00:10:96:0:0:0:0:2:80/udp"), r"write \[fd00:10:96::2\]:80/udp"),
        (("fd00::1", "fd00::2"), "is not an address and a port"),
        (("fd00::1", "fd00::http"), "is not an address and a port"),
    ],
)
def test_words_that_are_not_a_connection_are_one_line(words: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as error:
        parse_question(words)
    assert "\n" not in str(error.value)
