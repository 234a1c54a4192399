"""Tokens of service accounts: JSON Web Tokens (RFC 7519), signed by the server that alone reads them (HMAC with SHA-256).

PyJWT makes and checks them, all but the time: that is the server's clock's.

A token is good until it expires or its account is gone; an account made again under the same name is another one. The
holder of one is a reader: accounts have no roles of their own here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import jwt
import msgspec

from nodeagent.apiserver.api.authorization import TokenReader, User, user_of

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
"""Also the audience of tokens that are meant for this server."""
_ALGORITHM: Final = "HS256"
_REQUIRED: Final = ["aud", "exp", "iss", "sub"]


@dataclass(frozen=True, slots=True)
class Account:
    """A service account as it is now."""

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
    """Makes and reads tokens. `key` is the server's secret; `clock` gives seconds since 1970."""

    def __init__(self, key: bytes, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock

    def issue(self, account: Account, audiences: Sequence[str], seconds: int) -> tuple[str, int]:
        """(token, when it expires)."""
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
        """Whose token this is; None unless it is ours, meant for this server and not expired."""
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


class Bearers:
    """Everybody who can show a token. `exists` says whether an account is still that one."""

    def __init__(self, static: TokenReader, accounts: AccountTokens, exists: Callable[[Account], bool]) -> None:
        self._static = static
        self._accounts = accounts
        self._exists = exists

    def user(self, token: str) -> User | None:
        """Whose token it is."""
        known = self._static.user(token)
        if known is not None:
            return known
        account = self._accounts.read(token)
        if account is None or not self._exists(account):
            return None
        return user_of(f"system:serviceaccount:{account.namespace}:{account.name}", (), uid=account.uid)
