"""Until when a credential is valid, read from the token or the certificate itself. Pure.

A server that refuses a credential says only 401, or breaks off the handshake.
"""

import ssl
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from nodeagent.proxy.source.client.credentials import Credential

_VERSION, _UTC_TIME = 0xA0, 0x17
_LONG_LENGTH = 0x80
_PARTS_OF_TOKEN = 3


class _Claims(msgspec.Struct):
    exp: float | None = None


def expired(credential: Credential, now: datetime) -> str:
    """Returns what of the credential has expired, and when; empty if nothing is known to have expired."""
    ends = [("its token", token_end(credential.authorization or ""))]
    if credential.client_certificate is not None:
        ends.append(("its client certificate", certificate_end(credential.client_certificate[0])))
    found = (f"{what} expired at {end:%Y-%m-%dT%H:%M:%SZ}" for what, end in ends if end is not None and end <= now)
    return ", ".join(found)


def token_end(authorization: str) -> datetime | None:
    """Returns the end of a JSON Web Token (RFC 7519, `exp`); None for every other credential."""
    parts = authorization.removeprefix("Bearer ").split(".")
    if len(parts) != _PARTS_OF_TOKEN:
        return None
    try:
        claims = msgspec.json.decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=_Claims)
        return None if claims.exp is None else datetime.fromtimestamp(claims.exp, UTC)
    except (ValueError, OverflowError, OSError, msgspec.DecodeError):
        return None


def certificate_end(pem: bytes) -> datetime | None:
    """Returns notAfter of the first certificate of a PEM bundle (RFC 5280, 4.1); None if it cannot be read."""
    try:
        first = pem.decode("ascii", "ignore").partition("-----END CERTIFICATE-----")
        der = ssl.PEM_cert_to_DER_cert(first[0][first[0].index("-----BEGIN CERTIFICATE-----") :] + first[1])
        (_, certificate), *_ = _values(der)
        (_, signed), *_ = _values(certificate)
        fields = [value for value in _values(signed) if value[0] != _VERSION]
        validity = fields[3][1]  # after the serial number, the algorithm and the issuer
        kind, end = list(_values(validity))[1]
        form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
        return datetime.strptime(end.decode("ascii"), form).replace(tzinfo=UTC)
    except (ValueError, IndexError):
        return None


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the tag and the content of each value of a sequence in DER. Raises ValueError if it is cut off."""
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length >= _LONG_LENGTH:
            octets = length - _LONG_LENGTH
            length = int.from_bytes(der[at : at + octets])
            at += octets
        if at + length > len(der):
            raise ValueError("cut off")
        yield tag, der[at : at + length]
        at += length
