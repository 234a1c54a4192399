"""The errors between the agent and the API server. The class says who must act.

    KubeError
    ├── OperatorError             a person must change a file, a credential or a permission
    │   ├── KubeconfigError       the file has a value that cannot be used
    │   └── CredentialsError      a token file or exec plugin did not give a credential
    ├── ServerUnreachableError    the environment: no connection, or it broke; try again
    │   └── UntrustedServerError  its certificate is not accepted; a person must act
    ├── MalformedAnswerError      the other side does not speak the Kubernetes API (a proxy's error page, say)
    │   └── OversizedError        the answer is longer than a bound allows
    └── StatusError               the server answered with a status
        ├── UnauthorizedError     401: the credential is not accepted; a person must act
        ├── ForbiddenError        403: a role binding is missing; a person must act
        ├── NotServedError        404: the server has no such resource
        ├── RejectedError         any other 4xx: the server understood and will not; we must ask differently
        ├── ExpiredError          410: the requested state is too old; list again
        ├── NotYetReachedError    504: the server has not reached the requested version; wait
        ├── ThrottledError        429: wait
        └── ServerFailedError     5xx: a failure of the server; try again

Pure: no I/O here.
"""

from http import HTTPStatus

from msgspec import Struct
from msgspec.json import Decoder

from nodeagent.wire.unreadable import UNREADABLE

RETRY_AFTER_BOUNDS_SECONDS = (0.1, 60.0)
"""Bounds of the pause that a server may request; a smaller or greater one is treated as the bound."""


class KubeError(Exception):
    """Root of the tree; `str` is one line for users. cure: what a person can do, in one line."""

    cure = "see that the API server can be reached from this node"


class OperatorError(KubeError):
    cure = "see the file or program that gives the credential"


class KubeconfigError(OperatorError):
    """`str` names the file and the field."""


class CredentialsError(OperatorError):
    pass


class ServerUnreachableError(KubeError):
    """No complete answer came from a server. sent: whether the server may have received the request. begun: whether its answer
    broke off in the middle."""

    def __init__(self, message: str, *, sent: bool = True, begun: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.begun = begun


class UntrustedServerError(ServerUnreachableError):
    """The server shows a certificate that does not prove who it is; no request was sent."""

    def __init__(self, message: str, cure: str) -> None:
        super().__init__(message, sent=False)
        self.cure = cure


class MalformedAnswerError(KubeError):
    cure = "see what answers at that address: it is not an API server"


class OversizedError(MalformedAnswerError):
    """`str` names what is bounded and the bound."""


class StatusCause(Struct, frozen=True):
    reason: str | None = None
    message: str | None = None


class StatusDetails(Struct, frozen=True, rename="camel"):
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int | None = None


class Status(Struct, frozen=True):
    """metav1.Status: the body of an error answer, and the object of an ERROR watch event."""

    kind: str | None = None
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None

    @property
    def retry_after_seconds(self) -> float | None:
        seconds = self.details.retry_after_seconds if self.details else None
        return _bounded(seconds) if seconds else None

    @property
    def is_status(self) -> bool:
        """Whether the body is a Status at all: error pages of a proxy before an API server are not."""
        return self.kind == "Status" or bool(self.reason or self.message)

    @property
    def is_too_large_resource_version(self) -> bool:
        """Whether the server lags behind the requested version (k8s.io/apiserver storage/errors.go).

        Servers before 1.20 give no cause, only the message.
        """
        causes = (self.details.causes if self.details else None) or ()
        if any(cause.reason == "ResourceVersionTooLarge" for cause in causes):
            return True
        return "Too large resource version" in (self.message or "")


class StatusError(KubeError):
    """A server answered with an error.

    code: the HTTP status; retry_after_seconds: the pause that the server requests, None if it requests none. of_api: the answer
    has a Status, so it comes from the API server; False: it may come from a proxy before it.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        retry_after_seconds: float | None = None,
        of_api: bool = True,
    ) -> None:
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self.of_api = of_api


class UnauthorizedError(StatusError):
    cure = "give the agent a credential that the server takes: its token or certificate is wrong or too old"


class ForbiddenError(StatusError):
    cure = "allow its account to list and watch that: kubectl auth can-i list services --as=ACCOUNT"


class NotServedError(StatusError):
    pass


class RejectedError(StatusError):
    @property
    def is_about_selectors(self) -> bool:
        """Whether the answer is about a selector: `field label not supported: …`, `"…" is not a known field selector`,
        `unable to parse requirement: …` (k8s.io/apimachinery, fields and labels)."""
        return any(words in str(self) for words in ("selector", "field label", "requirement"))


class ExpiredError(StatusError):
    pass


class NotYetReachedError(StatusError):
    pass


class ThrottledError(StatusError):
    cure = "the server has too many requests: see which client sends them"


class ServerFailedError(StatusError):
    cure = "see the log of the API server: it fails itself"


_CLASS_BY_CODE = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotServedError,
    410: ExpiredError,
    429: ThrottledError,
}
_status_decoder = Decoder(Status)


def status_of(body: bytes) -> Status:
    """Returns the Status in `body`; an empty one if the body is not a Status (a 404 of an unknown path is plain text)."""
    try:
        return _status_decoder.decode(body)
    except UNREADABLE:
        return Status()


def status_error(code: int, body: bytes, retry_after: str | None = None) -> StatusError:
    """Returns the error of an answer with HTTP status `code`; `retry_after` is the header, used if it is in seconds."""
    status = status_of(body)
    digits = retry_after is not None and retry_after.isascii() and retry_after.isdigit()
    header_seconds = _bounded(int(retry_after[:9])) if retry_after and digits else None
    message = status.message or first_line(body) or "no message"
    return _error(code, status, message, header_seconds or status.retry_after_seconds)


def event_error(status: Status) -> StatusError:
    """Returns the error that an ERROR watch event carries."""
    return _error(status.code or 500, status, status.message or "no message", status.retry_after_seconds)


def first_line(body: bytes, limit: int = 200) -> str:
    """Returns the start of an answer that is not a Status, fit for a log line."""
    lines = body[: 4 * limit].decode("utf-8", "replace").strip().splitlines()
    return lines[0][:limit] if lines else ""


def _bounded(seconds: int) -> float:
    least, most = RETRY_AFTER_BOUNDS_SECONDS
    return min(max(float(min(seconds, 10**9)), least), most)


def _error(code: int, status: Status, message: str, retry_after_seconds: float | None) -> StatusError:
    error_class: type[StatusError]
    if status.reason in {"Expired", "Gone"}:
        error_class = ExpiredError
    elif status.is_too_large_resource_version:
        error_class = NotYetReachedError
    elif code in _CLASS_BY_CODE:
        error_class = _CLASS_BY_CODE[code]
    else:
        error_class = ServerFailedError if code >= HTTPStatus.INTERNAL_SERVER_ERROR else RejectedError
    return error_class(
        code, message, reason=status.reason or "", retry_after_seconds=retry_after_seconds, of_api=status.is_status
    )
