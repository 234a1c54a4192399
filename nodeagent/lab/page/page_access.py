"""Decides which requests are allowed: they have the token, name the page by its address, and do not come from another
origin. Pure.

The token is in a header, which no form or link can send. For the other two see `nodeagent.runtime.serving.origins`.
"""

import hmac
from http import HTTPStatus

from nodeagent.runtime.serving.origins import AllowedHosts
from nodeagent.runtime.serving.responses import Request, Response

SCHEME = "Bearer "
_TEXT = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class Access:
    """The rules of one page. token: what a request must have. port: of 127.0.0.1, where the page is served."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self._hosts = AllowedHosts(port=port)

    def refusal(self, request: Request, *, open_to_all: bool = False) -> Response | None:
        """Returns the response to a forbidden request; None for an allowed one. open_to_all: no token is needed."""
        why = self._hosts.why_refused(request.host, request.origin)
        if why:
            return text(HTTPStatus.FORBIDDEN, f"{why}; `nodeagent lab status` prints the address")
        if open_to_all:
            return None
        scheme, given = request.authorization[: len(SCHEME)], request.authorization[len(SCHEME) :]
        if scheme != SCHEME or not hmac.compare_digest(given.encode(errors="surrogateescape"), self._token.encode()):
            return text(
                HTTPStatus.UNAUTHORIZED,
                "the token is missing or belongs to another lab: `nodeagent lab status` prints it",
            )
        return None


def text(status: HTTPStatus, line: str) -> Response:
    """Returns a response of one line of plain text."""
    return Response(status, _TEXT, f"{line}\n".encode())
