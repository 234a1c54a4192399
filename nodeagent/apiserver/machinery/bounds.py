"""Limits how many values a body may have and how deep they nest, in every format; checked before it is decoded. Pure.

A value is a number, a text, a map, a list, true, false or null; a key is counted with its value.
"""

from typing import Final

from nodeagent.kinds.description.status import bad_request, too_many_values

MOST_VALUES: Final = 100_000
DEEPEST: Final = 100
_OPENING: Final = frozenset(b"[{")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class Values:
    """Counts the values of a body that is read one by one."""

    def __init__(self) -> None:
        self.left = MOST_VALUES
        """How many more are allowed."""

    def take(self, count: int = 1) -> None:
        """Counts values that are about to be created. Raises ApiError 413 beyond the limit."""
        self.left -= count
        if self.left < 0:
            raise too_many_values(MOST_VALUES)


def check_json(body: bytes) -> int:
    """Returns about how many values the body has: at most 100,000, nested 100 deep. Raises ApiError 413, 400. It takes a few
    searches through the bytes and does not check that they are JSON: the decoder does that."""
    marks = _marks(body)
    if marks <= MOST_VALUES and body.count(b"[") + body.count(b"{") <= DEEPEST:
        return marks
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # At most a key and a text for each value: bounds the work below to milliseconds.
    if bare.count(b'"') > 4 * MOST_VALUES:
        raise too_many_values(MOST_VALUES)
    outside = b"".join(bare.split(b'"')[::2])
    marks = _marks(outside)
    if marks > MOST_VALUES:
        raise too_many_values(MOST_VALUES)
    depth = 0
    for bracket in outside.translate(None, _NO_BRACKETS):
        depth += 1 if bracket in _OPENING else -1
        if depth > DEEPEST:
            raise bad_request(f"error decoding request body: json: exceeded max depth of {DEEPEST}")
    return marks


def _marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
