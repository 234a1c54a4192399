"""TLS to the API server."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from nodeagent.proxy.source.client.api_errors import CredentialsError


class TlsTrust(Struct, frozen=True):
    """How the server is verified. authority: PEM bundle or its file (read again when it changes); None: the
    system's. server_name: expected in the certificate instead of the host in the URL. insecure: accept any certificate."""

    authority: Path | bytes | None = None
    server_name: str | None = None
    insecure: bool = False


class ShownCertificates:
    """The certificates (DER) that servers showed last, by the names that were expected in them. changed: set when one shows another."""

    def __init__(self) -> None:
        self.by_name: dict[str, bytes] = {}
        self.changed = asyncio.Event()

    def note(self, name: str, certificate: bytes) -> None:
        """Called when a server has shown this one."""
        if self.by_name.get(name) != certificate:
            self.by_name[name] = certificate
            self.changed.set()


class TlsContexts:
    """Makes the SSL context for the current trust and client certificate.

    The same context object is returned while nothing changes: aiohttp reuses connections per context.
    """

    def __init__(self, trust: TlsTrust) -> None:
        self._trust = trust
        self._made_from: tuple[bytes | None, tuple[bytes, bytes] | None] | None = None
        self._context: ssl.SSLContext | None = None
        self._checked: bytes | None = None
        self.shown = ShownCertificates()

    def context(self, client_certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext:
        """Returns the context. Raises CredentialsError if the authority's file or the client certificate cannot be used."""
        authority = self._authority()
        if self._context is None or self._made_from != (authority, client_certificate):
            self._context = _make_context(self._trust, authority, client_certificate)
            self._context.sslobject_class = _noting(self.shown)
            self._made_from = (authority, client_certificate)
        return self._context

    def _authority(self) -> bytes | None:
        """Returns the PEM bundle; None for the system's. An empty or half-written file raises CredentialsError instead."""
        path = self._trust.authority
        if not isinstance(path, Path):
            return path
        try:
            authority = path.read_bytes()
        except OSError as error:
            raise CredentialsError(f"certificate authority file {path}: {error.strerror}") from error
        if authority != self._checked:
            fault = check_authority(authority)
            if fault is not None:
                raise CredentialsError(f"certificate authority file {path}: {fault}")
            self._checked = authority
        return authority


def _noting(shown: ShownCertificates) -> type[ssl.SSLObject]:
    """Returns a class of connections that note the server's certificate after each handshake."""

    class Noting(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            certificate = self.getpeercert(binary_form=True)
            if certificate is not None:
                shown.note(self.server_hostname or "", certificate)

    return Noting


def _make_context(
    trust: TlsTrust, authority: bytes | None, client_certificate: tuple[bytes, bytes] | None
) -> ssl.SSLContext:
    try:
        # An empty bundle would make OpenSSL use the system's authorities.
        bundle = None if authority is None else authority.decode("ascii", "ignore") or "empty"
        context = ssl.create_default_context(cadata=bundle)
    except ssl.SSLError as error:
        raise CredentialsError(f"certificate authority: {error.reason or error}") from error
    if trust.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Python 3.13 demands an authority key identifier; the CAs of many clusters (k3s, older kubeadm) have none.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if client_certificate is not None:
        certificate, key = client_certificate
        try:
            with _as_file(certificate) as certificate_path, _as_file(key) as key_path:
                context.load_cert_chain(certificate_path, key_path, password=_no_passphrase)
        except (ssl.SSLError, ValueError, OSError) as error:
            why = getattr(error, "reason", None) or str(error)
            raise CredentialsError(f"client certificate and key: {why}") from error
    return context


def check_authority(authority: bytes) -> str | None:
    """Returns why the PEM bundle cannot be used, None if it can."""
    if not authority.strip():
        return "empty"
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority.decode("ascii", "ignore") or "not ASCII")
    except ssl.SSLError as error:
        return f"not a PEM certificate ({error.reason or error})"
    return None if context.cert_store_stats()["x509"] else "not a PEM certificate"


def check_client_certificate(certificate: bytes, key: bytes) -> str | None:
    """Returns why certificate and key cannot be used together, None if they can."""
    try:
        _make_context(TlsTrust(), None, (certificate, key))
    except CredentialsError as error:
        return str(error)
    return None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yields a path to read the bytes from: OpenSSL takes paths only, and a key should not touch a disk."""
    with ExitStack() as stack:
        descriptor = os.memfd_create("nodeagent-pem", os.MFD_CLOEXEC)
        stack.callback(os.close, descriptor)
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"


def _no_passphrase() -> str:
    """Raises ValueError. Without this OpenSSL would ask for the passphrase on the terminal."""
    raise ValueError("the private key is encrypted")
