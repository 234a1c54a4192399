"""Parses what a request is about from its method, path and query. Pure."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from nodeagent.apiserver.machinery.schema.protobuf import MEDIA_TYPE
from nodeagent.kinds.description.status import bad_request, excerpt, not_acceptable

_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_INT64: Final = range(-(2**63), 2**63)
_MOST_DIGITS: Final = 64
_DURATION: Final = re.compile(r"[+-]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)", re.ASCII)
_META: Final = "meta.k8s.io"
_META_VERSIONS: Final = ("v1", "v1beta1")
ANSWERED_IN_JSON: Final = ("application/json", "*/*", "application/*", "application/yaml")
"""Media types that are answered with JSON."""
ACCEPTED: Final = f"only the following media types are accepted: application/json, {MEDIA_TYPE}"
_MOST_WORDS: Final = 3
"""Resource, object, subresource."""


@dataclass(frozen=True, slots=True)
class Target:
    """A path below /api or /apis: a resource, an object of it, or a subresource of the object."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_target(segments: tuple[str, ...]) -> Target | None:
    """Returns the target of a path such as `api, v1, namespaces, demo, services, web, status`; None if it is no resource."""
    match segments:
        case ("api", version, _, *_):
            group, rest = "", segments[2:]
        case ("apis", group, version, _, *_):
            rest = segments[3:]
        case _:
            return None
    namespace = ""
    match rest:
        case ("namespaces", _, subresource) if subresource in _NAMESPACE_SUBRESOURCES:
            pass
        case ("namespaces", namespace, _, *_):
            rest = rest[2:]
    if len(rest) > _MOST_WORDS:
        return None
    plural, name, subresource = (*rest, "", "")[:_MOST_WORDS]
    return Target(group, version, plural, namespace, name, subresource)


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """Returns the Kubernetes verb, or an empty text if the target does not support the method."""
    if method == "GET":
        if is_true(query.get("watch", "")):
            return "watch"
        if target.subresource == "token":
            return ""
        return "get" if target.name else "list"
    if target.name and target.subresource == "token":
        return "create" if method == "POST" else ""
    if target.name:
        return {"PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")
    return {"POST": "create", "DELETE": "deletecollection"}.get(method, "")


def is_true(text: str) -> bool:
    """Returns the value of a boolean query parameter."""
    return text.lower() in ("1", "true", "t", "yes")


def number(query: Mapping[str, str], name: str) -> int | None:
    """Returns an integer of the query, or None if it is absent. Raises ApiError 400."""
    text = query.get(name, "")
    if not text:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(digits) > _MOST_DIGITS or int(text) not in _INT64:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def check_timeout(query: Mapping[str, str]) -> None:
    """Raises ApiError 400 for a `timeout` that is no duration of Go (time.ParseDuration). The value has no effect: a request
    has no deadline, and its client may disconnect."""
    text = query.get("timeout", "")
    if text and (len(text) > _MOST_DIGITS or not _DURATION.fullmatch(text)):
        why = f'time: invalid duration "{excerpt(text)}"'
        raise bad_request(f"invalid timeout specified in the request URL - {why}")


@dataclass(frozen=True, slots=True)
class Accepted:
    """One entry of an Accept header."""

    media_type: str
    parameters: Mapping[str, str]


def parse_accept(header: str) -> list[Accepted]:
    """Returns the entries of an Accept header, in order."""
    found = []
    for entry in header.split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        found.append(Accepted(media_type.lower(), {name.strip(): value.strip() for name, _, value in pairs}))
    return found


@dataclass(frozen=True, slots=True)
class Shape:
    """A form of meta.k8s.io that the client wants instead of the object itself: `Table`, `PartialObjectMetadata` and so on."""

    kind: str
    version: str


def shape_of(header: str, shapes: Collection[str]) -> Shape | None:
    """Returns the first of `shapes` that an Accept header asks for in a version that exists, or None if it prefers the object
    itself. Raises ApiError 406 if the header asks for other forms only."""
    wanted = parse_accept(header)
    for accepted in wanted:
        asked = accepted.parameters.get("as")
        if accepted.media_type not in ANSWERED_IN_JSON:
            continue
        if asked is None:
            return None
        version = accepted.parameters.get("v", "")
        if asked in shapes and accepted.parameters.get("g") == _META and version in _META_VERSIONS:
            return Shape(asked, version)
    if not header:
        return None
    raise not_acceptable(ACCEPTED)


def prefers(header: str, media_types: Collection[str]) -> bool:
    """Returns whether an Accept header names one of `media_types` before JSON."""
    for accepted in parse_accept(header):
        if accepted.media_type in media_types:
            return True
        if accepted.media_type in ("application/json", "*/*", "application/*"):
            return False
    return False


def accepts_json(header: str) -> bool:
    """Returns whether an Accept header allows JSON in any form."""
    if not header:
        return True
    return any(accepted.media_type in ANSWERED_IN_JSON for accepted in parse_accept(header))


def as_text(received: str) -> str:
    """Returns text from a request head with U+FFFD for bytes that are not UTF-8, as Go replaces them."""
    return received if received.isascii() else received.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
