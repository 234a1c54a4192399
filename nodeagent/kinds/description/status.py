"""The errors that clients see: Kubernetes Status objects (meta/v1), with the texts of Kubernetes.

Field errors follow k8s.io/apimachinery/pkg/util/validation/field: their order, their cause types and their wording.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from nodeagent.kinds.description.documents import Document, Json, encode

MOST_ERRORS: Final = 100
"""The limit for one object; validation stops after it."""
_LONGEST_VALUE: Final = 1024
"""Characters of a client's value that an error repeats."""
_LONGEST_MESSAGE: Final = 128 * 1024


class ApiError(Exception):
    """A failed request. `document` is the Status of the response; `headers` are sent with it."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Document | None = None,
        headers: Mapping[str, str] | None = None,
        metadata: Document | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = excerpt(message, _LONGEST_MESSAGE)
        self.details = details
        self.headers = dict(headers or {})
        self.metadata = metadata or {}

    @property
    def document(self) -> Document:
        """The Status object."""
        status: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error of an object. `cause`: the machine-readable kind. `text`: what follows the field's name.

    value, supported: an unsupported word, and the supported ones.
    """

    cause: str
    field: str
    text: str
    value: Json = None
    supported: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def excerpt(text: str, longest: int = _LONGEST_VALUE) -> str:
    """Returns the text, or its beginning if it is long."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def shown(value: Json) -> str:
    """Returns a value as Go prints it in an error."""
    if isinstance(value, str):
        return encode(excerpt(value)).decode()
    if isinstance(value, list | dict):
        return excerpt(encode(value).decode())
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def invalid(field: str, value: Json, detail: str) -> FieldError:
    """The value is not valid."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    """The field is missing."""
    return FieldError("FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value")


def duplicate(field: str, value: Json) -> FieldError:
    """The value may occur only once."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def forbidden(field: str, detail: str) -> FieldError:
    """The field may not be set here."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def unsupported(field: str, value: Json, supported: Sequence[str]) -> FieldError:
    """The value is not one of an enumeration."""
    names = ", ".join(shown(item) for item in sorted(supported))
    text = f"Unsupported value: {shown(value)}: supported values: {names}"
    return FieldError("FieldValueNotSupported", field, text, value, tuple(supported))


def too_many(field: str, count: int, limit: int) -> FieldError:
    """The list is too long."""
    return FieldError("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} items")


def too_long(field: str, limit: int) -> FieldError:
    """The text is too long."""
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def object_invalid(kind: str, name: str, errors: Sequence[FieldError], group: str = "") -> ApiError:
    """422: the object has these errors; the response lists the first hundred."""
    more = len(errors) > MOST_ERRORS
    errors, name = errors[:MOST_ERRORS], excerpt(name)
    causes = [{"reason": e.cause, "message": e.text, "field": e.field} for e in errors]
    listed = ", ".join(str(error) for error in errors)
    text = listed if len(errors) == 1 else f"[{listed}]"
    if more:
        text += " and more"
    qualified = f"{kind}.{group}" if group else kind
    details: Document = {"name": name}
    if group:
        details["group"] = group
    return ApiError(
        422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details={**details, "kind": kind, "causes": causes}
    )


def _about(resource: str, name: str, group: str = "") -> tuple[str, Document]:
    name = excerpt(name)
    details: Document = {"name": name}
    if group:
        details["group"] = group
    details["kind"] = resource
    return f'{resource}.{group} "{name}"' if group else f'{resource} "{name}"', details


@contextmanager
def ignoring(reason: str) -> Iterator[None]:
    """Suppresses the ApiError with this reason, such as ``NotFound``."""
    try:
        yield
    except ApiError as error:
        if error.reason != reason:
            raise


def not_found(resource: str, name: str, group: str = "") -> ApiError:
    """404: the object does not exist."""
    subject, details = _about(resource, name, group)
    return ApiError(404, "NotFound", f"{subject} not found", details=details)


def already_exists(resource: str, name: str, group: str = "") -> ApiError:
    """409: the name is taken."""
    subject, details = _about(resource, name, group)
    return ApiError(409, "AlreadyExists", f"{subject} already exists", details=details)


def conflict(resource: str, name: str, why: str, group: str = "") -> ApiError:
    """409: the object is not in the state that the request assumed."""
    subject, details = _about(resource, name, group)
    return ApiError(409, "Conflict", f"Operation cannot be fulfilled on {subject}: {why}", details=details)


def modified(resource: str, name: str, group: str = "") -> ApiError:
    """409: the resourceVersion in the request is not the latest."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why, group)


def denied(resource: str, name: str, why: str, group: str = "", causes: Sequence[Document] = ()) -> ApiError:
    """403: the request is not allowed."""
    subject, details = _about(resource, name, group)
    if causes:
        details["causes"] = list(causes)
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def forbidden_page(why: str) -> ApiError:
    """403: a page of another origin, in a browser, made the request."""
    return ApiError(403, "Forbidden", f"forbidden: {why}", details={})


def bad_request(message: str) -> ApiError:
    """400: the request is not valid."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: the credentials are missing or not known."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    """405: the resource does not support the verb."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})


def not_acceptable(message: str) -> ApiError:
    """406: the server supports none of the formats that the client accepts."""
    return ApiError(406, "NotAcceptable", message)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """415: the server cannot read the format of the body."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", message)


def body_too_large(limit_bytes: int) -> ApiError:
    """413: the body is larger than the limit."""
    message = f"Request entity too large: limit is {limit_bytes}"
    return ApiError(413, "RequestEntityTooLarge", message)


def too_many_values(limit: int) -> ApiError:
    """413: the body has more values than the limit, although it may be small."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit} values")


def too_many_operations(count: int, limit: int) -> ApiError:
    """413: a JSON patch has more operations than Kubernetes allows."""
    message = f"The allowed maximum operations in a JSON patch is {limit}, got {count}"
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def expired(message: str, metadata: Document | None = None) -> ApiError:
    """410: the requested revision is no longer kept."""
    return ApiError(410, "Expired", message, metadata=metadata)


def future_version(asked: int, current: int) -> ApiError:
    """504: the requested revision does not exist yet."""
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers={"Retry-After": "1"},
    )


def internal_error(message: str) -> ApiError:
    """500: an error of the server; the text is logged and sent to the client."""
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        details={"causes": [{"message": message}]},
    )


def too_many_requests(message: str, seconds: int = 1) -> ApiError:
    """429: the client should retry after this many seconds, as client libraries do automatically."""
    return ApiError(
        429,
        "TooManyRequests",
        message,
        details={"retryAfterSeconds": seconds},
        headers={"Retry-After": str(seconds)},
    )


def storage_unreachable(message: str) -> ApiError:
    """503: the storage does not answer; nothing was written."""
    return ApiError(503, "ServiceUnavailable", message, details={"retryAfterSeconds": 1}, headers={"Retry-After": "1"})


def storage_uncertain(message: str) -> ApiError:
    """504: the outcome of the write is unknown; the client must read again to find out."""
    return ApiError(504, "Timeout", message, details={"retryAfterSeconds": 1}, headers={"Retry-After": "1"})


def storage_full() -> ApiError:
    """507: the disk or the size limit of the store is exhausted; nothing was written."""
    return ApiError(507, "InsufficientStorage", "the store is full: nothing was written; free space or raise the limit")
