"""What of a text is shown as it is, and what as an escape."""

import unicodedata

import pytest

from nodeagent.model.text import counted, none_of_its, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("default/web: port 80 → 8080, ä", "default/web: port 80 → 8080, ä", id="ordinary"),
        pytest.param("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m", id="ESC"),
        pytest.param("\x9b31m", r"\x9b31m", id="CSI in one character"),
        pytest.param("a\r\nb\tc", r"a\r\nb\tc", id="new lines"),
        pytest.param("a\u2028b\x85c", r"a\u2028b\x85c", id="lines of Unicode"),
        pytest.param("\u202etxt.exe\u2066", r"\u202etxt.exe\u2066", id="directions"),
        pytest.param("a\u200bb\ufeff", r"a\u200bb\ufeff", id="invisible"),
        pytest.param("\ud800", r"\ud800", id="half a character"),
        pytest.param("\U000e0041", r"\U000e0041", id="tags"),
    ],
)
def test_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_no_control_and_no_format_character_gets_through() -> None:
    dangerous = [
        chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]
    assert len(dangerous) > 2000
    assert all(printable(character).isascii() and len(printable(character)) > 1 for character in dangerous)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 problems"), (1, "1 problem"), (2, "2 problems")],
)
def test_one_is_not_a_plural(number: int, expected: str) -> None:
    assert counted(number, "problem") == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1, "its only endpoint is not ready"), (2, "none of its 2 endpoints is ready")],
)
def test_none_of_one_is_not_a_plural(number: int, expected: str) -> None:
    assert f"{none_of_its(number, 'endpoint')} ready" == expected
