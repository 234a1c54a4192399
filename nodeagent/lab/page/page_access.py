"""Who may ask: clients that know the token, call the page by its address, and are no page of another origin. Pure.

The token is in a header, which no form or link can send. `nodeagent.runtime.serving.origins` says what the other two are for.
"""

import hmac
from http import HTTPStatus

from nodeagent.runtime.serving.origins import AllowedHosts
from nodeagent.runtime.serving.responses import Request, Response

SCHEME = "Bearer "
_TEXT = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class Access:
    """The rules of one page. token: what a request has to carry. port: of 127.0.0.1, where the page is served."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self._hosts = AllowedHosts(port=port)

    def refusal(self, request: Request, *, open_to_all: bool = False) -> Response | None:
        """The answer to a request that is not allowed; None for one that is. open_to_all: no token is needed."""
        why = self._hosts.why_refused(request.host, request.origin)
        if why:
            return text(HTTPStatus.FORBIDDEN, f"{why}; `nodeagent lab status` prints the address")
        if open_to_all:
            return None
        scheme, given = request.authorization[: len(SCHEME)], request.authorization[len(SCHEME) :]
        if scheme != SCHEME or not hmac.compare_digest(given.encode(errors="surrogateescape"), self._token.encode()):
            return text(
                HTTPStatus.UNAUTHORIZED, "the token is missing or another lab's: `nodeagent lab status` prints it"
            )
        return None


def text(status: HTTPStatus, line: str) -> Response:
    """An answer of one line of plain text."""
    return Response(status, _TEXT, f"{line}\n".encode())
