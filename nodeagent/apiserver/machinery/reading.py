"""Lists: selection, paging, and the meaning of resourceVersion (KEP-1904 `resourceVersionMatch`)."""

import base64
import binascii
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import msgspec

from nodeagent.apiserver.machinery.selectors import EVERYTHING, Selector
from nodeagent.apiserver.storage.records import Compacted, Record
from nodeagent.apiserver.storage.store import PastState, Store
from nodeagent.kinds.description import status
from nodeagent.kinds.description.resources import FieldReader, Resource
from nodeagent.wire.unreadable import UNREADABLE

LIST_TOO_OLD: Final = "The resourceVersion for the provided list is too old."
CONTINUE_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)
_MOST_DIGITS: Final = 64
_IN_PATH: Final = frozenset({"metadata.name", "metadata.namespace"})
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource are selected: by namespace (empty: all), labels and fields."""

    namespace: str = ""
    labels: Selector = EVERYTHING
    fields: Selector = EVERYTHING
    reader: FieldReader | None = None
    """Needed if `fields` names more than name and namespace."""

    @property
    def selective(self) -> bool:
        """Whether labels or fields may exclude objects."""
        return bool(self.labels.requirements or self.fields.requirements)

    def matches(self, record: Record) -> bool:
        """Returns whether the object is selected."""
        if self.namespace and not record.path.startswith(f"{self.namespace}/"):
            return False
        if self.labels.requirements and not self.labels.matches(record.labels):
            return False
        if not self.fields.requirements:
            return True
        if self.reader is None:
            return self.fields.matches({"metadata.name": record.name, "metadata.namespace": record.namespace})
        return self.fields.matches(self.reader.read(record.body))


def needs_reader(fields: Selector) -> bool:
    """Returns whether the selector uses fields that are not part of the object's path."""
    return any(requirement.key not in _IN_PATH for requirement in fields.requirements)


@dataclass(frozen=True, slots=True)
class ListRequest:
    """The options of a list: selection, limit (0: none), continue token, resourceVersion and resourceVersionMatch."""

    selection: Selection = field(default_factory=Selection)
    limit: int = 0
    token: str = ""
    version: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: records in order of their paths, at a revision. `token` (if not empty) continues it."""

    records: Sequence[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def parse_version(text: str) -> int:
    """Returns the revision of a resourceVersion; 0 if it is empty. Raises ApiError 400."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise status.bad_request(f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    if len(text) > _MOST_DIGITS or int(text) >= 2**64:
        raise status.bad_request(f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


Steps: TypeAlias = Generator[None, None, _Result]
"""Work that may be interrupted wherever it yields (machinery/loop_time.py)."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The objects in the namespace, before labels and fields are compared; in order of their paths."""

    records: Sequence[Record]
    revision: int
    count: int
    """The number of all candidates; `records` holds no more than are needed."""
    prefix: str


def list_page(store: Store, resource: Resource, request: ListRequest) -> Steps[Page]:
    """Returns the page that was requested, from the state of the store at the call. Raises ApiError: 400 for a bad token or
    version, 410 if it is too old, 504 if it is in the future."""
    selection = request.selection
    prefix = f"{selection.namespace}/" if selection.namespace and resource.namespaced else ""
    version, after = _origin(store, request, prefix)
    if version is None or version == store.revision:
        collection = store.collection(resource.stored_in)
        paths = collection.paths(prefix, after)
        needed = _needed(paths, request)
        records = list(map(collection.records.__getitem__, needed))
        return (yield from _select(_Candidates(records, store.revision, len(paths), prefix), request))
    past = yield from _past(store, resource, version, request)
    paths = past.paths(prefix, after)
    records = list(map(past.records.__getitem__, _needed(paths, request)))
    return (yield from _select(_Candidates(records, version, len(paths), prefix), request))


def _needed(paths: list[str], request: ListRequest) -> list[str]:
    return paths if request.selection.selective or not request.limit else paths[: request.limit + 1]


def _select(found: _Candidates, request: ListRequest) -> Steps[Page]:
    """Returns the records that match, up to the limit."""
    selection = request.selection
    if not selection.selective and not request.limit:
        return Page(found.records, found.revision)
    records: list[Record] = []
    for position, record in enumerate(found.records):
        yield
        if not selection.matches(record):
            continue
        if request.limit and len(records) == request.limit:
            last = records[-1].path
            remaining = None if selection.selective else found.count - position
            return Page(records, found.revision, _token(found.revision, last.removeprefix(found.prefix)), remaining)
        records.append(record)
    return Page(records, found.revision)


def _origin(store: Store, request: ListRequest, prefix: str) -> tuple[int | None, str | None]:
    """Returns (revision to list at, None for the latest; path to continue after). Raises ApiError."""
    if request.token:
        if request.match:
            raise option_forbidden(
                "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
            )
        if request.version not in ("", "0"):
            raise status.bad_request("specifying resource version is not allowed when using continue")
        token = _read_token(request.token)
        if token.rv > store.revision:
            raise status.future_version(token.rv, store.revision)
        start = prefix + token.start.removeprefix("/").removesuffix("\0")
        return (token.rv if token.rv > 0 else None), start
    version = parse_version(request.version)
    if request.match and not request.version:
        raise option_forbidden(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if request.match not in ("", "Exact", "NotOlderThan"):
        wrong = status.unsupported("resourceVersionMatch", request.match, ("", "Exact", "NotOlderThan"))
        raise status.object_invalid("ListOptions", "", [wrong], "meta.k8s.io")
    if version > store.revision:
        raise status.future_version(version, store.revision)
    if request.match == "Exact" and not version:
        raise option_forbidden(
            "resourceVersionMatch", 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
        )
    exact = request.match == "Exact" or (not request.match and request.limit and version)
    return (version if exact else None), None


def option_forbidden(field_name: str, why: str) -> status.ApiError:
    """Returns the error 422 for an option of a list or watch that is not allowed here."""
    return status.object_invalid("ListOptions", "", [status.forbidden(field_name, why)], "meta.k8s.io")


def _past(store: Store, resource: Resource, version: int, request: ListRequest) -> Steps[PastState]:
    try:
        store.check_revision(version)
    except Compacted:
        if not request.token:
            raise status.expired(LIST_TOO_OLD) from None
        inconsistent = _encode_token(_Token("meta.k8s.io/v1", -1, _read_token(request.token).start))
        raise status.expired(CONTINUE_TOO_OLD, {"continue": inconsistent}) from None
    return (yield from store.collection(resource.stored_in).past(version))


def _token(revision: int, last: str) -> str:
    return _encode_token(_Token("meta.k8s.io/v1", revision, f"/{last}\0"))


def _encode_token(token: _Token) -> str:
    # Go writes the NUL as \\u0000; so does msgspec.
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _read_token(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise status.bad_request(
            f"invalid continue token: continue key is not valid: illegal base64 data at input byte {len(text)}"
        ) from None
    try:
        token = msgspec.json.decode(raw, type=_Token)
    except UNREADABLE:
        first = raw[:1]
        shown = first.decode("latin-1") if first.isascii() and first.isalnum() else f"\\x{first.hex()}"
        why = f"invalid character '{shown}' looking for beginning of value" if first else "unexpected end of JSON input"
        raise status.bad_request(f"invalid continue token: continue key is not valid: {why}") from None
    if token.v != "meta.k8s.io/v1" or not token.start:
        raise status.bad_request(
            "invalid continue token: continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"
        )
    return token


def length_of(page: Page, opening: bytes, closing: bytes) -> int:
    """Returns the length in bytes of all chunks of `in_chunks`."""
    commas = max(len(page.records) - 1, 0)
    return len(opening) + sum([len(record.body) for record in page.records]) + commas + len(closing)


def in_chunks(page: Page, opening: bytes, closing: bytes, size_bytes: int) -> Iterator[bytes]:
    """Yields the encoded list in pieces of less than `size_bytes`; a longer record is a piece of its own and not copied."""
    return joined((record.body for record in page.records), opening, closing, size_bytes)


def joined(items: Iterable[bytes], opening: bytes, closing: bytes, size_bytes: int) -> Iterator[bytes]:
    """Yields a JSON list in pieces of less than `size_bytes`; an item that is longer is a piece of its own. Empty pieces are
    steps of the work: an item was made that does not fill a piece."""
    pieces: list[bytes] = [opening]
    weight = len(opening)
    for position, item in enumerate(items):
        if position:
            pieces.append(b",")
        if weight + len(item) >= size_bytes:
            yield b"".join(pieces)
            pieces, weight = [], 0
        if len(item) >= size_bytes:
            yield item
        else:
            pieces.append(item)
            weight += len(item)
            yield b""
    pieces.append(closing)
    yield b"".join(pieces)
