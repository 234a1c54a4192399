"""Why a member that should answer does not: what is found out by one more connection to it, in words for who runs it."""

import asyncio
import os
import ssl
from pathlib import Path
from typing import Final

from nodeagent.apiserver.storage.etcd.rpc import Endpoint
from nodeagent.runtime.certificates import CertificateFailed, openssl

_SECONDS: Final = 1.5
_REFUSAL_SECONDS: Final = 0.3
"""A member that refuses a certificate says so after the handshake (RFC 8446, 4.4.2.4), and takes back what it has said when written to."""
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a client begins HTTP/2 (RFC 9113, 3.4)."""
_SETTINGS: Final = 4
_ENOUGH: Final = 9
_UNKNOWN_AUTHORITY: Final = frozenset({18, 19, 20, 21})
"""X509_verify_cert_error_string(3): nobody who is trusted has signed it."""


async def diagnose(endpoint: Endpoint, context: ssl.SSLContext | None, certificate: Path | None = None) -> str:
    """Empty where the connection is as it should be. `certificate`: what is shown to it, if anything."""
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except OSError as error:
        return await _unconnected(error, context, certificate)
    try:
        return await _converse(reader, writer, context, certificate)
    finally:
        writer.transport.abort()


async def _unconnected(error: OSError, context: ssl.SSLContext | None, certificate: Path | None) -> str:
    match error:
        case TimeoutError():
            return "no connection comes about" if context is None else "it hangs, or takes no part in TLS"
        case ssl.SSLCertVerificationError():
            return _mistrusted(error)
        case ssl.SSLError():
            return await _of_tls(error, certificate)
        case ConnectionResetError() if context is not None:
            return "it ends the TLS handshake: does it want http://?"
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext | None, certificate: Path | None
) -> str:
    said = b""
    try:
        if context is not None:
            try:
                async with asyncio.timeout(_REFUSAL_SECONDS):
                    said = await reader.read(_ENOUGH)
                if not said:
                    return await _refused(certificate, "")
            except TimeoutError:
                pass
        writer.write(_GREETING)
        async with asyncio.timeout(_SECONDS):
            said = said or await reader.read(_ENOUGH)
    except TimeoutError:
        return "it takes connections and does not answer"
    except ssl.SSLError as error:
        return await _of_tls(error, certificate)
    except OSError:
        said = b""
    if not said:
        return "it ends connections: does it want https://?" if context is None else await _refused(certificate, "")
    if len(said) > 3 and said[3] == _SETTINGS:  # noqa: PLR2004 - the type of a frame (RFC 9113, 4.1)
        return ""
    return "it does not speak HTTP/2: it is no etcd"


def _mistrusted(error: ssl.SSLCertVerificationError) -> str:
    why = (error.verify_message or str(error)).rstrip(".")
    hint = ": no authority of --etcd-cafile has signed it" if error.verify_code in _UNKNOWN_AUTHORITY else ""
    return f"its certificate is not trusted, {why}{hint}"


async def _of_tls(error: ssl.SSLError, certificate: Path | None) -> str:
    reason = error.reason or str(error)
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return await _refused(certificate, f" ({reason.partition('ALERT_')[2].replace('_', ' ').lower()})")
    if reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "it does not speak TLS: does it want http://?"
    return f"TLS fails: {reason.replace('_', ' ').lower()}"


async def _refused(certificate: Path | None, why: str) -> str:
    if certificate is None:
        return f"it wants a certificate{why}: --etcd-certfile and --etcd-keyfile are not given"
    return f"it refuses the certificate of --etcd-certfile{why}{await asyncio.to_thread(_end_of, certificate)}"


def _end_of(certificate: Path) -> str:
    """Until when a certificate is good, as far as openssl-x509(1) can tell."""
    try:
        shown = openssl("x509", "-noout", "-enddate", "-in", str(certificate))
    except CertificateFailed:
        return ""
    name, _, moment = shown.strip().partition("=")
    return f", which is good until {moment}" if name == "notAfter" else ""
