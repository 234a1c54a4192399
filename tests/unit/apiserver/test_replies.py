"""Headers that carry what clients wrote."""

import pytest

from nodeagent.apiserver.api.replies import warning_headers


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        pytest.param("plain", "plain", id="plain"),
        pytest.param('unknown field "spec.x"', 'unknown field \\"spec.x\\"', id="quotes"),
        pytest.param("a\\b", "a\\\\b", id="backslash"),
        pytest.param("a\r\nSet-Cookie: b", "a\\x0d\\x0aSet-Cookie: b", id="a line end ends no header"),
        pytest.param("\0\x7f\x85", "\\x00\\x7f\\x85", id="other control characters"),
        pytest.param("größe", "größe", id="letters"),
    ],
)
def test_a_warning_is_one_header_of_printable_text(text: str, sent: str) -> None:
    assert warning_headers([text]) == [("Warning", f'299 - "{sent}"')]
