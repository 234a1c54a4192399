"""Responses as values, independent of a connection."""

import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
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
"""The limit of each warning if all together are too long (k8s.io/apiserver/pkg/endpoints/filters/warning.go)."""
Piece: TypeAlias = bytes | memoryview
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """A response. For long ones `chunks` replaces `body`; they are made while they are sent. `chunked_bytes` is the length of
    all chunks, or None if it is known only when they have been made."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = field(default_factory=tuple)
    chunks: Iterable[Piece] | None = None
    chunked_bytes: int | None = 0

    @property
    def length(self) -> int | None:
        """Length of the body in bytes, or None if it is not known yet."""
        return len(self.body) if self.chunks is None else self.chunked_bytes

    def pieces(self) -> Iterator[Piece]:
        """Yields the body in pieces. An empty piece of `chunks` is a step of the work, not the end."""
        if self.chunks is None:
            yield self.body
        else:
            yield from self.chunks


NextPiece: TypeAlias = Callable[[Iterator[Piece]], Awaitable[Piece]]
"""Returns the next piece that is not empty, when it is the client's turn; an empty piece at the end."""


async def prefetch(reply: Reply, most_bytes: int, next_piece: NextPiece) -> Reply:
    """Returns the reply with its first `most_bytes` already made; with its length if that is all. Raises what `chunks` raises."""
    if reply.length is not None:
        return reply
    pieces, made, weight = reply.pieces(), deque[Piece](), 0
    while len(piece := await next_piece(pieces)):
        made.append(piece)
        weight += len(piece)
        if weight >= most_bytes:
            return replace(reply, chunks=_chained(made, pieces))
    return replace(reply, body=b"".join(made), chunks=None)


def _chained(made: deque[Piece], further: Iterator[Piece]) -> Iterator[Piece]:
    while made:
        yield made.popleft()
    yield from further


def document_reply(document: Document, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Reply:
    """Returns a reply with a JSON document."""
    return Reply(status, encode(document), headers=headers)


def cached_reply(body: bytes, content_type: str, known: str) -> Reply:
    """Returns a reply that the client may cache; 304 without a body if `known` (If-None-Match) has its ETag."""
    tag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    headers = (("ETag", tag), ("Vary", "Accept"), ("Cache-Control", "public"))
    if tag in (part.strip() for part in known.split(",")):
        return Reply(304, content_type=content_type, headers=headers)
    return Reply(body=body, content_type=content_type, headers=headers)


def text_reply(text: str, status: int = 200) -> Reply:
    """Returns a reply with plain text."""
    return Reply(status, text.encode(), TEXT)


def error_reply(error: ApiError) -> Reply:
    """Returns a reply with the Status of the error."""
    return document_reply(error.document, error.code, tuple(error.headers.items()))


def warning_headers(warnings: Iterable[str]) -> list[tuple[str, str]]:
    """Returns Warning headers (RFC 7234) as Kubernetes sends them: 50 and 4 KiB at most. The texts may hold any characters."""
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
