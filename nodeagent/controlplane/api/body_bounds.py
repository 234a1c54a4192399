"""How much structure a body may have, counted before anything is made of it. Pure.

A value is a number, a text, a map, a list, true, false or null; a key is part of its value. Counting is a matter of a few
searches through the bytes, whatever they hold.
"""

from typing import Final

from nodeagent.controlplane.status import bad_request, too_many_values

MOST_VALUES: Final = 100_000
DEEPEST: Final = 100
_OPENING: Final = frozenset(b"[{")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def check_structure(body: bytes) -> None:
    """JSON with at most 100,000 values, nested 100 deep. Raises ApiError 413, 400.

    That it is JSON is for the decoder to find out: of anything else it counts what would be values.
    """
    if _marks(body) <= MOST_VALUES and body.count(b"[") + body.count(b"{") <= DEEPEST:
        return
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # No more than a key and a text for each value, so that what follows takes milliseconds.
    if bare.count(b'"') > 4 * MOST_VALUES:
        raise too_many_values(MOST_VALUES)
    outside = b"".join(bare.split(b'"')[::2])
    if _marks(outside) > MOST_VALUES:
        raise too_many_values(MOST_VALUES)
    depth = 0
    for bracket in outside.translate(None, _NO_BRACKETS):
        depth += 1 if bracket in _OPENING else -1
        if depth > DEEPEST:
            raise bad_request(f"error decoding request body: json: exceeded max depth of {DEEPEST}")


def _marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
