"""Tokens of service accounts: JSON Web Tokens (RFC 7519), signed with HMAC and SHA-256 by the server, which alone can verify
them.

PyJWT makes and checks them, except for the time: that is compared with the server's own clock.

A token is valid until it expires or its account is deleted; an account created again under the same name does not accept it.
Its user has the role of a reader: accounts have no roles of their own here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import jwt
import msgspec

from nodeagent.apiserver.api.authorization import TokenReader, User, user_of

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
"""The issuer of all tokens, and the audience of tokens that are meant for this server."""
_ALGORITHM: Final = "HS256"
_REQUIRED: Final = ["aud", "exp", "iss", "sub"]


@dataclass(frozen=True, slots=True)
class Account:
    """A service account, identified by its UID."""

    namespace: str
    name: str
    uid: str


class _Owner(msgspec.Struct):
    name: str
    uid: str


class _Bound(msgspec.Struct):
    namespace: str
    serviceaccount: _Owner


class _Claims(msgspec.Struct, rename={"bound": "kubernetes.io"}):
    exp: int
    bound: _Bound


class AccountTokens:
    """Makes and reads tokens. `key` is the server's secret; `clock` returns seconds since 1970."""

    def __init__(self, key: bytes, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock

    def issue(self, account: Account, audiences: Sequence[str], seconds: int) -> tuple[str, int]:
        """Returns (token, time of expiry in seconds since 1970)."""
        now = int(self._clock())
        expires = now + seconds
        claims = {
            "aud": list(audiences),
            "exp": expires,
            "iat": now,
            "iss": ISSUER,
            "kubernetes.io": {
                "namespace": account.namespace,
                "serviceaccount": {"name": account.name, "uid": account.uid},
            },
            "nbf": now,
            "sub": f"system:serviceaccount:{account.namespace}:{account.name}",
        }
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM), expires

    def read(self, token: str) -> Account | None:
        """Returns the account of a token, or None if the token is not ours, is for another audience, or has expired."""
        try:
            found = jwt.decode(
                token,
                self._key,
                algorithms=[_ALGORITHM],
                audience=ISSUER,
                issuer=ISSUER,
                options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": _REQUIRED},
            )
            claims = msgspec.convert(found, _Claims)
        except (jwt.InvalidTokenError, msgspec.ValidationError):
            return None
        if claims.exp <= self._clock():
            return None
        return Account(claims.bound.namespace, claims.bound.serviceaccount.name, claims.bound.serviceaccount.uid)


class BearerTokens:
    """Finds the user of a token: from the static file or, if it is an account's token, from the account. `exists` returns
    whether an account is still present with the same UID."""

    def __init__(self, static: TokenReader, accounts: AccountTokens, exists: Callable[[Account], bool]) -> None:
        self._static = static
        self._accounts = accounts
        self._exists = exists

    def user(self, token: str) -> User | None:
        """Returns the user of a token, or None if it is not valid."""
        known = self._static.user(token)
        if known is not None:
            return known
        account = self._accounts.read(token)
        if account is None or not self._exists(account):
            return None
        return user_of(f"system:serviceaccount:{account.namespace}:{account.name}", (), uid=account.uid)
