"""Impersonation (`kubectl --as`): an administrator acts as another user, with the permissions of that user. Pure."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from nodeagent.apiserver.api import authorization
from nodeagent.apiserver.api.authorization import Role, User
from nodeagent.apiserver.api.request_target import as_text
from nodeagent.kinds.description.status import ApiError, bad_request

_USER: Final = "impersonate-user"
_GROUP: Final = "impersonate-group"
_UID: Final = "impersonate-uid"
_EXTRA: Final = "impersonate-extra-"


def acting_user(user: User, headers: Iterable[tuple[str, str]]) -> User:
    """Returns the user that the request acts as. Raises ApiError 403 for all but administrators, 400 if no user is named."""
    given = [(name.lower(), as_text(value)) for name, value in headers if name.lower().startswith("impersonate-")]
    asked = [(name, value) for name, value in given if name in (_USER, _GROUP, _UID) or name.startswith(_EXTRA)]
    if not asked:
        return user
    name = next((value for name, value in asked if name == _USER), "")
    if not name:
        raise bad_request("impersonation without the name of a user (Impersonate-User)")
    if user.role is not Role.ADMIN:
        what = f'User "{user.name}" cannot impersonate resource "users" in API group "" at the cluster scope'
        details = {"name": name, "kind": "users"}
        raise ApiError(403, "Forbidden", f'users "{name}" is forbidden: {what}', details=details)
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in asked:
        if header.startswith(_EXTRA):
            key = unquote(header.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    return authorization.user_of(
        name,
        [value for header, value in asked if header == _GROUP],
        uid=next((value for header, value in asked if header == _UID), ""),
        extra=tuple(sorted(extra.items())),
    )
