"""Responses, before they meet a connection."""

import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeAlias
from unicodedata import category

from nodeagent.kinds.description.documents import Document, encode
from nodeagent.kinds.description.status import ApiError, excerpt

JSON: Final = "application/json"
_WARNINGS_LONGEST: Final = 4096
_MOST_WARNINGS: Final = 50
"""Python's http.client reads no more than a hundred headers."""
_WARNING_LONGEST: Final = 256
"""Of each, where all of them are too long (k8s.io/apiserver/pkg/endpoints/filters/warning.go)."""
Piece: TypeAlias = bytes | memoryview
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response. `chunks`, of `chunked_bytes` together, replaces `body` for long ones; they are made when sent. None:
    how long they are is known when they have been made."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = field(default_factory=tuple)
    chunks: Iterable[Piece] | None = None
    chunked_bytes: int | None = 0

    @property
    def length(self) -> int | None:
        """Of the body, in bytes, where it is known."""
        return len(self.body) if self.chunks is None else self.chunked_bytes

    def pieces(self) -> Iterator[Piece]:
        """The body, in pieces; those of `chunks` that are empty are steps on the way to the next."""
        if self.chunks is None:
            yield self.body
        else:
            yield from self.chunks


NextPiece: TypeAlias = Callable[[Iterator[Piece]], Awaitable[Piece]]
"""Has the next piece made when it is the client's turn; an empty one at the end."""


async def begun(reply: Reply, most_bytes: int, next_piece: NextPiece) -> Reply:
    """A reply whose first `most_bytes` have been made: with its length, if that is all. Raises what making them raises."""
    if reply.length is not None:
        return reply
    pieces, made, weight = reply.pieces(), deque[Piece](), 0
    while len(piece := await next_piece(pieces)):
        made.append(piece)
        weight += len(piece)
        if weight >= most_bytes:
            return replace(reply, chunks=_all(made, pieces))
    return replace(reply, body=b"".join(made), chunks=None)


def _all(made: deque[Piece], further: Iterator[Piece]) -> Iterator[Piece]:
    while made:
        yield made.popleft()
    yield from further


def document_reply(document: Document, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Reply:
    """A JSON document."""
    return Reply(status, encode(document), headers=headers)


def cached_reply(body: bytes, content_type: str, known: str) -> Reply:
    """What a client may keep: an empty 304 when `known` (If-None-Match) names it."""
    tag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    headers = (("ETag", tag), ("Vary", "Accept"), ("Cache-Control", "public"))
    if tag in (part.strip() for part in known.split(",")):
        return Reply(304, content_type=content_type, headers=headers)
    return Reply(body=body, content_type=content_type, headers=headers)


def text_reply(text: str, status: int = 200) -> Reply:
    """Plain text."""
    return Reply(status, text.encode(), TEXT)


def error_reply(error: ApiError) -> Reply:
    """The Status of a failure."""
    return document_reply(error.document, error.code, tuple(error.headers.items()))


def warning_headers(warnings: Iterable[str]) -> list[tuple[str, str]]:
    """RFC 7234 Warning headers as Kubernetes sends them, 50 and 4 KiB at most; what clients call a field may hold anything."""
    given = [_quoted(excerpt(text, _WARNINGS_LONGEST)) for text in islice(warnings, _MOST_WARNINGS)]
    if sum(map(len, given)) > _WARNINGS_LONGEST:
        given = [text[:_WARNING_LONGEST] for text in given]
    shown: list[tuple[str, str]] = []
    room = _WARNINGS_LONGEST
    for text in given:
        room -= len(text)
        if room < 0:
            break
        shown.append(("Warning", f'299 - "{text}"'))
    return shown


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(f"\\x{ord(char):02x}" if category(char) == "Cc" else char for char in escaped)


def merged(*groups: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Header groups in one list."""
    return [pair for group in groups for pair in (group.items() if isinstance(group, Mapping) else group)]
