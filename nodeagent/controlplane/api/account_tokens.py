"""Tokens of service accounts: JSON Web Tokens (RFC 7519), signed by the server that alone reads them (HMAC with SHA-256).

A token is good until it expires or its account is gone; an account made again under the same name is another one. Whoever
shows one is a reader: accounts have no roles of their own here.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from nodeagent.controlplane.api.access import Role, TokenReader, User
from nodeagent.controlplane.documents import encode

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
"""Also the audience of tokens that are meant for this server."""
_HEADER: Final = b'{"alg":"HS256","typ":"JWT"}'


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
    aud: list[str]
    exp: int
    bound: _Bound


_claims = msgspec.json.Decoder(_Claims)


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
        signed = b".".join((_text(_HEADER), _text(encode(claims))))
        return b".".join((signed, _text(self._sign(signed)))).decode(), expires

    def read(self, token: str) -> Account | None:
        """Whose token this is; None unless it is ours, meant for this server and not expired."""
        signed, _, signature = token.rpartition(".")
        header, _, body = signed.partition(".")
        expected = _text(self._sign(signed.encode()))
        if not hmac.compare_digest(expected, signature.encode()) or header.encode() != _text(_HEADER):
            return None
        try:
            claims = _claims.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, msgspec.DecodeError):
            return None
        if ISSUER not in claims.aud or claims.exp <= self._clock():
            return None
        return Account(claims.bound.namespace, claims.bound.serviceaccount.name, claims.bound.serviceaccount.uid)

    def _sign(self, signed: bytes) -> bytes:
        return hmac.digest(self._key, signed, hashlib.sha256)


def _text(data: bytes) -> bytes:
    """Base64 as RFC 7515 has it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")


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
        return User(f"system:serviceaccount:{account.namespace}:{account.name}", Role.READER)
