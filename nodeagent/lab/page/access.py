"""Who may ask: whoever knows the token, calls us by the address we have, and comes from no other page. Pure.

A page of somebody else's can make a browser connect to us, under a name of its own that it has made to mean 127.0.0.1 (then Host
is that name), or from its own origin (then Origin is that). The token is in a header, which no form or link can send.
"""

import hmac
from http import HTTPStatus

from nodeagent.observe.responses import Request, Response

SCHEME = "Bearer "
_TEXT = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class Access:
    """The rules of one page. token: what a request has to carry. port: of 127.0.0.1, where the page is served."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {"", *(f"http://{host}" for host in self._hosts)}

    def refusal(self, request: Request, *, open_to_all: bool = False) -> Response | None:
        """The answer to a request that is not allowed; None for one that is. open_to_all: no token is needed."""
        if request.host not in self._hosts:
            return text(HTTPStatus.FORBIDDEN, "call this server by the address that `nodeagent lab status` prints")
        if request.origin not in self._origins:
            return text(HTTPStatus.FORBIDDEN, "this is not for other pages")
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
