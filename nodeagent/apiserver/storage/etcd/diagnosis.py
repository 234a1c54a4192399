"""Finds out by one more connection why a member does not answer, and says so in words for the operator."""

import asyncio
import os
import ssl
from pathlib import Path
from typing import Final

from nodeagent.apiserver.storage.etcd.rpc import Endpoint
from nodeagent.runtime.certificates import CertificateFailed, openssl

_SECONDS: Final = 1.5
_REFUSAL_SECONDS: Final = 0.3
"""A member reports that it refuses a certificate after the handshake (RFC 8446, 4.4.2.4); that report is lost if data is sent
first."""
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The beginning of an HTTP/2 connection (RFC 9113, 3.4)."""
_SETTINGS: Final = 4
_ENOUGH: Final = 9
_UNKNOWN_AUTHORITY: Final = frozenset({18, 19, 20, 21})
"""X509_verify_cert_error_string(3): no trusted authority has signed it."""


async def diagnose(endpoint: Endpoint, context: ssl.SSLContext | None, certificate: Path | None = None) -> str:
    """Returns what is wrong with the connection; empty if it works. `certificate`: the client certificate, if any."""
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except OSError as error:
        return await _connect_error(error, context, certificate)
    try:
        return await _probe(reader, writer, context, certificate)
    finally:
        writer.transport.abort()


async def _connect_error(error: OSError, context: ssl.SSLContext | None, certificate: Path | None) -> str:
    match error:
        case TimeoutError():
            return "it cannot be connected to" if context is None else "it hangs, or does not speak TLS"
        case ssl.SSLCertVerificationError():
            return _mistrust(error)
        case ssl.SSLError():
            return await _tls_error(error, certificate)
        case ConnectionResetError() if context is not None:
            return "it ends the TLS handshake: does it need http://?"
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)


async def _probe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext | None, certificate: Path | None
) -> str:
    received = b""
    try:
        if context is not None:
            try:
                async with asyncio.timeout(_REFUSAL_SECONDS):
                    received = await reader.read(_ENOUGH)
                if not received:
                    return await _refusal(certificate, "")
            except TimeoutError:
                pass
        writer.write(_GREETING)
        async with asyncio.timeout(_SECONDS):
            received = received or await reader.read(_ENOUGH)
    except TimeoutError:
        return "it accepts connections and does not answer"
    except ssl.SSLError as error:
        return await _tls_error(error, certificate)
    except OSError:
        received = b""
    if not received:
        return "it closes connections: does it need https://?" if context is None else await _refusal(certificate, "")
    if len(received) > 3 and received[3] == _SETTINGS:  # noqa: PLR2004 - the type of a frame (RFC 9113, 4.1)
        return ""
    return "it does not speak HTTP/2: it is not etcd"


def _mistrust(error: ssl.SSLCertVerificationError) -> str:
    why = (error.verify_message or str(error)).rstrip(".")
    hint = ": no authority of --etcd-cafile has signed it" if error.verify_code in _UNKNOWN_AUTHORITY else ""
    return f"its certificate is not trusted, {why}{hint}"


async def _tls_error(error: ssl.SSLError, certificate: Path | None) -> str:
    reason = error.reason or str(error)
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return await _refusal(certificate, f" ({reason.partition('ALERT_')[2].replace('_', ' ').lower()})")
    if reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "it does not speak TLS: does it need http://?"
    return f"TLS fails: {reason.replace('_', ' ').lower()}"


async def _refusal(certificate: Path | None, why: str) -> str:
    if certificate is None:
        return f"it requires a certificate{why}: --etcd-certfile and --etcd-keyfile are not set"
    return f"it refuses the certificate of --etcd-certfile{why}{await asyncio.to_thread(_expiry_of, certificate)}"


def _expiry_of(certificate: Path) -> str:
    """Returns until when a certificate is valid, if openssl-x509(1) can read it."""
    try:
        shown = openssl("x509", "-noout", "-enddate", "-in", str(certificate))
    except CertificateFailed:
        return ""
    name, _, moment = shown.strip().partition("=")
    return f", which is valid until {moment}" if name == "notAfter" else ""
