"""From when and until when certificates and bearer tokens are valid (pure): RFC 5280 section 4.1, RFC 7519 section 4.1."""

import re
import ssl
from base64 import urlsafe_b64decode
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

LONGEST_NOTICE = timedelta(days=7)
SHARE_OF_LIFE = 10
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_LONG = 0x80
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_FIELDS_BEFORE_VALIDITY = 3


class Validity(NamedTuple):
    """The time in which a certificate or a token is valid. begins: None if that is not known."""

    begins: datetime | None
    ends: datetime

    def is_ending(self, now: datetime) -> bool:
        """Returns whether it ends within a week, or within the last tenth of its life if that is shorter: what lives for a day or an
        hour is renewed by a program, long before that."""
        notice = LONGEST_NOTICE
        if self.begins is not None:
            notice = min(notice, (self.ends - self.begins) / SHARE_OF_LIFE)
        return now >= self.ends - notice


class _Claims(msgspec.Struct):
    exp: float | None = None
    iat: float | None = None


def of_certificate(der: bytes) -> Validity | None:
    """Returns the validity of an X.509 certificate in DER; None if it cannot be read as one."""
    try:
        position, _ = _enter(der, 0, _SEQUENCE)
        position, _ = _enter(der, position, _SEQUENCE)
        if der[position] == _VERSION:
            position = _after(der, position)
        for _ in range(_FIELDS_BEFORE_VALIDITY):
            position = _after(der, position)
        begin, _ = _enter(der, position, _SEQUENCE)
        return Validity(_time(der, begin), _time(der, _after(der, begin)))
    except (IndexError, ValueError):
        return None


def of_certificates(pem: bytes) -> list[Validity]:
    """Returns the validities of all certificates in a text, in their order; leaves out what cannot be read."""
    found = []
    for block in _BLOCK.findall(pem.decode("ascii", "ignore")):
        try:
            der = ssl.PEM_cert_to_DER_cert(block)
        except ValueError:
            continue
        if (validity := of_certificate(der)) is not None:
            found.append(validity)
    return found


def of_token(authorization: str | None) -> Validity | None:
    """Returns the validity of a bearer token that is a JSON Web Token with an end; None for any other."""
    parts = (authorization or "").removeprefix("Bearer ").split(".")
    if len(parts) != len(("header", "claims", "signature")):
        return None
    try:
        claims = msgspec.json.decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=_Claims)
        if claims.exp is None:
            return None
        begins = None if claims.iat is None else datetime.fromtimestamp(claims.iat, UTC)
        return Validity(begins, datetime.fromtimestamp(claims.exp, UTC))
    except (ValueError, OverflowError, OSError, RecursionError):
        return None


def _enter(der: bytes, position: int, tag: int) -> tuple[int, int]:
    """Returns where the content of an element begins and ends. Raises ValueError, IndexError."""
    if der[position] != tag:
        raise ValueError("another element was expected")
    return _content(der, position)


def _after(der: bytes, position: int) -> int:
    return _content(der, position)[1]


def _content(der: bytes, position: int) -> tuple[int, int]:
    length, start = der[position + 1], position + 2
    if length & _LONG:
        width = length & ~_LONG
        length, start = int.from_bytes(der[start : start + width], "big"), start + width
    if start + length > len(der):
        raise ValueError("it is cut off")
    return start, start + length


def _time(der: bytes, position: int) -> datetime:
    """Times are in UTC, with seconds (RFC 5280, section 4.1.2.5)."""
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(der[position])
    if form is None:
        raise ValueError("no time")
    start, end = _content(der, position)
    return datetime.strptime(der[start:end].decode("ascii"), form).replace(tzinfo=UTC)
