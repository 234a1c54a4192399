"""The options of a request: from its query, its headers, and the body of a deletion."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.apiserver.api import bodies
from nodeagent.apiserver.api.authorization import User
from nodeagent.apiserver.api.request_target import as_text, is_true, number
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.dependents import BACKGROUND, ORPHAN, POLICIES
from nodeagent.apiserver.machinery.write_rules import DeleteOptions
from nodeagent.kinds.description import status
from nodeagent.kinds.description.documents import Document

_LONGEST_MANAGER: Final = 128
_DELETE_OPTIONS: Final = {
    "apiVersion": str,
    "gracePeriodSeconds": int,
    "preconditions": dict,
    "orphanDependents": bool,
    "propagationPolicy": str,
    "dryRun": list,
}
_GO_NAMES: Final = {str: "string", int: "number", float: "number", bool: "bool", list: "array", dict: "object"}


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of an HTTP request that a verb needs. `read` returns the body; its size is bounded."""

    query: Mapping[str, str]
    headers: Mapping[str, str]
    read: Callable[[], Awaitable[bytes]]
    user: User
    accept: str = ""
    """The Accept header."""
    dry_run: Sequence[str] = ()
    """All values of the parameter `dryRun`."""

    @property
    def client(self) -> str:
        """The name of the user, to which the work of the request is charged."""
        return self.user.name

    @property
    def content_type(self) -> str:
        """The media type of the body in lower case, without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def manager(self) -> str:
        """The field manager of a write: `fieldManager`, else the program name from User-Agent."""
        given = self.query.get("fieldManager") or _printable(self.headers.get("User-Agent", "").partition("/")[0])
        return given or "unknown"


def _printable(agent: str) -> str:
    """Returns the printable characters, 128 bytes at most (prefixFromUserAgent in k8s.io/apiserver/pkg/endpoints/handlers)."""
    text = "".join(char for char in as_text(agent) if char.isprintable())
    return text.encode()[:_LONGEST_MANAGER].decode(errors="ignore")


def write_options(request: Request, kind: str) -> WriteOptions:
    """Returns the options of a write. `kind` is their name in errors, such as UpdateOptions. Raises ApiError 422."""
    query = request.query
    validation = query.get("fieldValidation") or "Warn"
    manager = query.get("fieldManager", "")
    errors: list[status.FieldError] = []
    if kind == "PatchOptions" and request.content_type == bodies.APPLY_PATCH:
        if not manager:
            errors.append(status.required("fieldManager", "is required for apply patch"))
    elif is_true(query.get("force", "")):
        errors.append(status.forbidden("force", "may not be specified for non-apply patch"))
    if len(manager.encode()) > _LONGEST_MANAGER:
        errors.append(status.too_long("fieldManager", _LONGEST_MANAGER))
    elif not manager.isprintable():
        errors.append(status.invalid("fieldManager", manager, "should only contain printable characters"))
    errors += _dry_run_errors(request.dry_run)
    if validation not in ("Ignore", "Warn", "Strict"):
        errors.append(status.unsupported("fieldValidation", validation, ("Ignore", "Strict", "Warn")))
    if errors:
        raise status.object_invalid(kind, "", errors, "meta.k8s.io")
    return WriteOptions(
        manager=request.manager,
        dry_run=bool(request.dry_run),
        validation=validation,
        force=is_true(query.get("force", "")),
    )


def _dry_run_errors(asked: Sequence[str]) -> list[status.FieldError]:
    """Returns an error unless every value is `All`: a mistyped dry run must not be carried out."""
    return [status.unsupported("dryRun", list(asked), ("All",))] if any(one != "All" for one in asked) else []


def delete_options(request: Request, given: Document) -> DeleteOptions:
    """Returns the options of a deletion, from its query and its body. Raises ApiError 400, 422."""
    _check_types(given)
    query = request.query
    policy, orphans = query.get("propagationPolicy") or given.get("propagationPolicy"), given.get("orphanDependents")
    errors: list[status.FieldError] = []
    if policy is not None and orphans is not None:
        errors.append(
            status.invalid("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set")
        )
    elif policy not in (None, *POLICIES):
        errors.append(status.unsupported("propagationPolicy", policy, (*POLICIES, "nil")))
    dry_run = [*request.dry_run, *(given.get("dryRun") or ())]
    errors += _dry_run_errors(dry_run)
    if errors:
        raise status.object_invalid("DeleteOptions", "", errors, "meta.k8s.io")
    conditions = given.get("preconditions") or {}
    grace = number(query, "gracePeriodSeconds")
    return DeleteOptions(
        uid=conditions.get("uid") or "",
        version=conditions.get("resourceVersion") or "",
        grace_seconds=given.get("gracePeriodSeconds") if grace is None else grace,
        policy=(policy or "") if orphans is None else ORPHAN if orphans else BACKGROUND,
        dry_run=bool(dry_run),
    )


def _check_types(given: Document) -> None:
    """Raises ApiError 400 for a body that Go would not decode as DeleteOptions: then nothing may be deleted."""
    if given.get("kind") not in (None, "", "DeleteOptions"):
        raise status.bad_request("decoded object cannot be converted to DeleteOptions")
    conditions = given.get("preconditions")
    fields = [(name, given.get(name), kind) for name, kind in _DELETE_OPTIONS.items()]
    if isinstance(conditions, dict):
        fields += [(f"preconditions.{name}", conditions.get(name), str) for name in ("uid", "resourceVersion")]
    fields += [("dryRun", item, str) for item in given.get("dryRun") or () if isinstance(given.get("dryRun"), list)]
    for name, value, kind in fields:
        if value is not None and type(value) is not kind:
            raise status.bad_request(
                f"json: cannot unmarshal {_GO_NAMES[type(value)]} into Go struct field DeleteOptions.{name}"
            )
