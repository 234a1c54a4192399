"""HTTP requests and answers as values. Pure."""

from collections.abc import AsyncGenerator, Mapping
from typing import NamedTuple

from nodeagent.model.addresses import Family

JSON_HEADERS: Mapping[str, str] = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
"""The headers of every answer about health (kube-proxy, pkg/proxy/healthcheck)."""


class Request(NamedTuple):
    """A request. path: without the query; family, port: of the socket it arrived at; host: the header Host;
    origin: the page that sent it, if a browser names it."""

    path: str
    family: Family
    port: int
    method: str = "GET"
    query: str = ""
    host: str = ""
    origin: str = ""
    authorization: str = ""


class Response(NamedTuple):
    """A complete answer, with a body of known length."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(NamedTuple):
    """An answer that is sent piece by piece, with status 200, for as long as the client stays."""

    headers: Mapping[str, str]
    pieces: AsyncGenerator[bytes, None]


NOT_FOUND = Response(
    404,
    {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"},
    b"404 page not found\n",
)
