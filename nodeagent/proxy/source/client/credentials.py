"""How the agent authenticates to the API server: every way to obtain a credential except the exec plugin (`exec_plugin`).

A credential source returns a credential for each request, and is notified when the server refused it. Requests are rare (a
watch lasts minutes), so files are simply read each time: bound tokens and client certificates rotate on disk.
"""

import re
from base64 import b64encode
from datetime import datetime
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from nodeagent.proxy.source.client.api_errors import CredentialsError

_NO_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


class Credential(Struct, frozen=True):
    """The credential of a request. authorization: value of the header, None for no header.

    client_certificate: PEM certificate chain and PEM private key; None if none is sent. expires: when the source must be asked for a
    new one; None if the source does not know.
    """

    authorization: str | None = None
    client_certificate: tuple[bytes, bytes] | None = None
    expires: datetime | None = None


def fits_header(text: str) -> bool:
    """Returns whether the text can be sent in an HTTP header (RFC 9110, field values)."""
    return _NO_HEADER.search(text) is None


class CredentialSource(Protocol):
    async def current(self) -> Credential:
        """Returns the credential to use now. Raises CredentialsError."""
        ...

    def refused(self) -> None:
        """Called after the server answered 401 to the last credential: `current` must not return the same one from memory again."""
        ...


class FixedCredential:
    """A token or a password written in the kubeconfig, or no credential."""

    def __init__(self, authorization: str | None = None) -> None:
        self._credential = Credential(authorization)

    @classmethod
    def token(cls, token: str) -> "FixedCredential":
        return cls(f"Bearer {token}")

    @classmethod
    def password(cls, username: str, password: str) -> "FixedCredential":
        return cls("Basic " + b64encode(f"{username}:{password}".encode()).decode())

    async def current(self) -> Credential:
        return self._credential

    def refused(self) -> None:
        """Does nothing: there is no other credential."""


class TokenFile:
    """A bearer token in a file that another program renews (a projected service account token)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def current(self) -> Credential:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise CredentialsError(f"token file {self._path}: {_why(error)}") from error
        if not token:
            raise CredentialsError(f"token file {self._path}: empty")
        return Credential(f"Bearer {token}")

    def refused(self) -> None:
        """Does nothing: the file is read each time."""


class ClientCertificate:
    """A client certificate, from files (read each time) or inline, in addition to the credential of another source."""

    def __init__(self, source: CredentialSource, certificate: Path | bytes, key: Path | bytes) -> None:
        self._source = source
        self._certificate = certificate
        self._key = key

    async def current(self) -> Credential:
        credential = await self._source.current()
        certificate = (_pem(self._certificate), _pem(self._key))
        return Credential(credential.authorization, certificate, credential.expires)

    def refused(self) -> None:
        self._source.refused()


def _pem(content: Path | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return content.read_bytes()
    except OSError as error:
        raise CredentialsError(f"client certificate file {content}: {_why(error)}") from error


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "not UTF-8 text"
