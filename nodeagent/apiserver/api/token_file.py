"""Kubernetes' static token file: `token,user,uid,"group,group"` per line. It is read again when it changed."""

import csv
import logging
from pathlib import Path

from nodeagent.apiserver.api.authorization import Role, Tokens, User, user_of

logger = logging.getLogger(__name__)
_TOKEN, _NAME, _UID, _GROUPS = 0, 1, 2, 3
"""Indices of the columns."""


class TokenFile:
    """Finds the user of a token. Users that are added or removed count from the next request on, without a restart."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises OSError."""
        self._path = path
        self._users: dict[str, User] = {}
        self._tokens = Tokens({})
        self._seen: tuple[int, int, int] | None = None
        self._read()

    def user(self, token: str) -> User | None:
        """Returns the user of a token, or None. Reads the file first if it changed."""
        try:
            self._read()
        except OSError as error:
            # Keep the users of the last successful read.
            logger.debug("tokens not read again path=%s error=%s", self._path, error)
        return self._tokens.user(token)

    def of(self, name: str) -> str:
        """Returns the token of a user; empty for an unknown user."""
        found = self.user_named(name)
        return found[0] if found is not None else ""

    def user_named(self, name: str) -> tuple[str, Role] | None:
        """Returns (token, role) of a user, or None if there is no such user."""
        return next(((token, user.role) for token, user in self._users.items() if user.name == name), None)

    def _read(self) -> None:
        found = self._path.stat()
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen == self._seen:
            return
        users: dict[str, User] = {}
        with self._path.open(newline="") as lines:
            for row in csv.reader(lines):
                if len(row) > _GROUPS:
                    users[row[_TOKEN]] = user_of(row[_NAME], row[_GROUPS].split(","), uid=row[_UID])
        self._users, self._tokens, self._seen = users, Tokens(users), seen
