"""Responses, before they meet a connection."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from unicodedata import category

from nodeagent.controlplane.documents import Document, encode
from nodeagent.controlplane.status import ApiError

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response. `chunks` replaces `body` for long ones."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = field(default_factory=tuple)
    chunks: Iterable[bytes] | None = None

    def pieces(self) -> Iterator[bytes]:
        """The body, in pieces."""
        if self.chunks is None:
            yield self.body
        else:
            yield from self.chunks


def document_reply(document: Document, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Reply:
    """A JSON document."""
    return Reply(status, encode(document), headers=headers)


def text_reply(text: str, status: int = 200) -> Reply:
    """Plain text."""
    return Reply(status, text.encode(), TEXT)


def error_reply(error: ApiError) -> Reply:
    """The Status of a failure."""
    return document_reply(error.document, error.code, tuple(error.headers.items()))


def warning_headers(warnings: Iterable[str]) -> list[tuple[str, str]]:
    """RFC 7234 Warning headers as Kubernetes sends them; what clients call a field may hold anything."""
    return [("Warning", f'299 - "{_quoted(text)}"') for text in warnings]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(f"\\x{ord(char):02x}" if category(char) == "Cc" else char for char in escaped)


def merged(*groups: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Header groups in one list."""
    return [pair for group in groups for pair in (group.items() if isinstance(group, Mapping) else group)]
