"""Turns the body of a request into an object that can be stored, or into the error that the client receives. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from nodeagent.kinds.description.decoding import TypeMismatch, normalise, normalise_sparse
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.object_rules import metadata
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.status import MOST_ERRORS, FieldError, bad_request, excerpt, object_invalid

_MOST_COMPLAINTS: Final = 100
"""As many as sigs.k8s.io/json reports."""


@dataclass(slots=True)
class WriteOptions:
    """The options of a write. `warnings` collects what the client is to be warned of."""

    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"
    """How unknown fields are handled: Ignore, Warn or Strict."""
    force: bool = False
    repeated: list[str] = field(default_factory=list)
    """Fields that the body has more than once."""
    warnings: list[str] = field(default_factory=list)
    size_bytes: int = 0
    """About how much work the body is, as bytes of JSON."""


def accept(resource: Resource, given: Document, options: WriteOptions, *, sparse: bool = False) -> Document:
    """Returns the client's document in stored form, without unknown fields; these are reported as requested. Raises ApiError
    400.

    sparse: keep only the fields that the client sent, for server-side apply.
    """
    unknown: list[str] = []
    try:
        document = (
            normalise_sparse(resource.struct, given, unknown) if sparse else normalise(resource.struct, given, unknown)
        )
    except TypeMismatch as mismatch:
        raise bad_request(f"{_cannot_be_handled(resource)}: {mismatch}") from None
    complaints = [f'unknown field "{excerpt(path)}"' for path in unknown[:_MOST_COMPLAINTS]]
    complaints += [f'duplicate field "{excerpt(path)}"' for path in options.repeated[:_MOST_COMPLAINTS]]
    if complaints and options.validation == "Strict":
        raise bad_request(f"{_cannot_be_handled(resource)}: strict decoding error: {', '.join(complaints)}")
    if options.validation == "Warn":
        options.warnings.extend(complaint for complaint in complaints if complaint not in options.warnings)
    return resource.to_stored(document)


def _cannot_be_handled(resource: Resource) -> str:
    return f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'


def check(resource: Resource, document: Document, errors: Iterable[FieldError]) -> None:
    """Raises ApiError 422 with the errors of the metadata, then `errors`; 100 at most."""
    rules = metadata(document, resource.name_check, namespaced=resource.namespaced)
    found = list(islice(chain(rules, errors), MOST_ERRORS + 1))
    if found:
        raise object_invalid(resource.kind, document["metadata"].get("name", ""), found, resource.group)
