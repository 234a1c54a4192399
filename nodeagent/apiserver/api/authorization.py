"""Authentication and authorisation: who the client is, and what it may do. Pure.

Four roles: an administrator may do everything; an agent may read what agents follow, write Events and keep a Lease of its own
name; a reader may read everything that is not confidential (Secrets); and everybody may check whether the server is alive.
There is no finer authorisation: a lab or a single machine has no use for RBAC, and an incomplete one would mislead.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from nodeagent.kinds.description.status import ApiError, unauthorized

ADMINS: Final = "system:masters"
AGENTS: Final = "nodeagent:agents"
READERS: Final = "nodeagent:readers"
PUBLIC: Final = ("livez", "readyz", "version")
_SCRAPED: Final = ("metrics", "metrics/slis")
"""Paths that only administrators and readers may read."""
_READ_VERBS: Final = ("get", "list", "watch")
_ABOUT_ONESELF: Final = (("selfsubjectreviews", "create"), ("selfsubjectaccessreviews", "create"))
"""What every authenticated client may ask: (resource, verb)."""
_READ_BY_AGENTS: Final = frozenset(
    {"endpoints", "endpointslices", "namespaces", "nodes", "pods", "servicecidrs", "services"}
)
"""Resources that agents may read."""


class Role(Enum):
    """The set of permissions that a user has."""

    NOBODY = "nobody"
    READER = "reader"
    AGENT = "agent"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user, or `system:anonymous`."""

    name: str
    role: Role
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS: Final = User("system:anonymous", Role.NOBODY)
AUTHENTICATED: Final = "system:authenticated"
_ACCOUNTS: Final = "system:serviceaccounts"
_ACCOUNT: Final = "system:serviceaccount:"


def role_of(groups: Sequence[str]) -> Role:
    """Returns the strongest role that the groups grant."""
    if ADMINS in groups:
        return Role.ADMIN
    if AGENTS in groups:
        return Role.AGENT
    return Role.READER if READERS in groups or _ACCOUNTS in groups else Role.NOBODY


def user_of(
    name: str, groups: Sequence[str], *, uid: str = "", extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
) -> User:
    """Returns the user with the role of its groups. A service account without groups gets the groups of service accounts."""
    if name == ANONYMOUS.name:
        return ANONYMOUS
    if name.startswith(_ACCOUNT) and not groups:
        namespace = name.removeprefix(_ACCOUNT).partition(":")[0]
        groups = (_ACCOUNTS, f"{_ACCOUNTS}:{namespace}")
    every = groups if AUTHENTICATED in groups else (*groups, AUTHENTICATED)
    return User(name, role_of(groups), tuple(every), uid, extra)


class Tokens:
    """Bearer tokens, as in Kubernetes' static token file: `token,user,uid,"group,group"` per line."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = dict(users)

    def user(self, token: str) -> User | None:
        """Returns the user of a token, or None. Compares with every token in constant time."""
        found = None
        given = token.encode()
        for known, user in self._users.items():
            if hmac.compare_digest(known.encode(), given):
                found = user
        return found


class TokenReader(Protocol):
    """Looks up the user of a token."""

    def user(self, token: str) -> User | None:
        """Returns the user, or None if the token is not known."""
        ...


def authenticate(header: str, tokens: TokenReader, certificate: User | None) -> User:
    """Returns the user of a request: by token, else client certificate, else anonymous. Raises ApiError 401 for a wrong token."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        # A token is ASCII (RFC 6750); compare_digest accepts no other text.
        user = tokens.user(token.strip()) if token.isascii() else None
        if user is None:
            raise unauthorized()
        return user
    if header:
        raise unauthorized()
    return certificate or ANONYMOUS


def authorize(
    user: User,
    verb: str,
    path: str,
    resource: str,
    namespace: str = "",
    name: str = "",
    group: str = "",
    *,
    subresource: str = "",
    confidential: bool = False,
) -> None:
    """Raises ApiError 401 (no credentials) or 403 (not allowed).

    resource: empty for a path that is no resource.
    confidential: readers may not read this resource.
    """
    if user.role is Role.ADMIN or path.lstrip("/").partition("/")[0] in PUBLIC:
        return
    if user.role is Role.NOBODY and user == ANONYMOUS:
        raise unauthorized()
    if (resource, verb) in _ABOUT_ONESELF:
        return
    if user.role is Role.READER and verb in _READ_VERBS and not confidential:
        return
    if (
        user.role is Role.AGENT
        and path.strip("/") not in _SCRAPED
        and _agent_may(user, verb, resource, name, subresource)
    ):
        return
    if not resource:
        raise ApiError(403, "Forbidden", f'forbidden: User "{user.name}" cannot {verb} path "{path}"', details={})
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    subject = f'{resource}.{group} "{name}"' if group and name else f'{resource} "{name}"' if name else resource
    what = f'User "{user.name}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
    details = {"name": name, "group": group, "kind": resource}
    raise ApiError(
        403,
        "Forbidden",
        f"{subject} is forbidden: {what}",
        details={key: value for key, value in details.items() if value},
    )


def certificate_user(certificate: object) -> User | None:
    """Returns the user that a verified client certificate names (common name; organisations are groups), or None without one."""
    if not isinstance(certificate, dict):
        return None
    pairs = [pair for entry in certificate.get("subject", ()) for pair in entry]
    names = [value for key, value in pairs if key == "commonName"]
    groups = [value for key, value in pairs if key == "organizationName"]
    return user_of(names[0], groups) if names else None


def authorize_new(user: User, resource: str, name: str) -> None:
    """Raises ApiError 403 if the user may not create an object of this name. `name` is empty if the server shall generate it."""
    if user.role is Role.AGENT and resource == "leases" and name != user.name:
        why = f'User "{user.name}" can create resource "leases" of its own name only'
        raise ApiError(
            403, "Forbidden", f'leases "{name}" is forbidden: {why}', details={"name": name, "kind": "leases"}
        )


def _agent_may(user: User, verb: str, resource: str, name: str, subresource: str) -> bool:
    match resource:
        case "":
            return verb == "get"
        case "events":
            return verb in ("create", "patch")
        case "leases":
            # The name of a new Lease is in the body only (`authorize_new`).
            return verb == "create" or (name == user.name and verb in ("get", "update", "patch"))
    return resource in _READ_BY_AGENTS and verb in _READ_VERBS and not subresource
