"""Keys, certificates and tokens of a server, made at its first start and kept in its data directory.

The `openssl` program makes them (docs/decisions/0040-openssl-makes-the-certificates.md): the standard library can use
certificates but not make them.
"""

import asyncio
import os
import secrets
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from nodeagent.apiserver.api.authorization import ADMINS, AGENTS, READERS
from nodeagent.apiserver.api.token_file import TokenFile

_CURVE: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_CA_DAYS: Final = 3650
_LEAF_DAYS: Final = 365
_RENEW_BEFORE_SECONDS: Final = 30 * 86400
_SECONDS: Final = 20.0
_ACCOUNT_KEY_BYTES: Final = 32
GROUPS: Final = {"admin": ADMINS, "reader": READERS, "agent": AGENTS}
"""The group that grants each role. Every server has one user of each role, with the role's name."""
CLUSTER_NAMES: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


class PkiFailed(Exception):
    """A certificate could not be made or read; the text says why."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The directory of the files, and the tokens of two of the users that every server has."""

    directory: Path
    admin_token: str
    reader_token: str
    tokens: TokenFile
    account_key: bytes
    """The key that signs tokens of service accounts."""

    @property
    def authority(self) -> Path:
        """Path of the certificate authority that clients trust."""
        return self.directory / "ca.crt"

    def server_context(self) -> ssl.SSLContext:
        """Returns a context for TLS 1.2 or later. A client certificate is requested, not required."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context


async def prepare(directory: Path, addresses: Iterable[str]) -> Credentials:
    """Makes the files in `directory` that are missing or about to expire; the server's certificate names `addresses`.
    Raises PkiFailed."""
    await asyncio.to_thread(_make_directory, directory)
    authority = directory / "ca.crt"
    if not await asyncio.to_thread(authority.exists):
        await _openssl(
            *("req", "-x509", *_CURVE, "-days", str(_CA_DAYS), "-subj", "/CN=nodeagent-apiserver-ca"),
            *("-keyout", str(directory / "ca.key"), "-out", str(authority)),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )
    await asyncio.to_thread(_check_authority, authority)
    names = [f"DNS:{name}" for name in CLUSTER_NAMES]
    names += [f"IP:{ip_address(address)}" for address in sorted({"127.0.0.1", "::1", *addresses})]
    await asyncio.gather(
        _leaf(directory, "server", "/CN=nodeagent-apiserver", "serverAuth", ",".join(names)),
        _leaf(directory, "admin", f"/O={ADMINS}/CN=admin", "clientAuth", ""),
        _leaf(directory, "reader", f"/O={READERS}/CN=reader", "clientAuth", ""),
    )
    return await asyncio.to_thread(_read_tokens, directory)


def _check_authority(path: Path) -> None:
    try:
        ssl.create_default_context(cafile=str(path))
    except OSError as error:
        raise PkiFailed(
            f"{path}: not a certificate that can be read: put back the one that was there, or remove {path.parent} to have "
            "all keys and tokens made again"
        ) from error


def _make_directory(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)


async def _leaf(directory: Path, name: str, subject: str, usage: str, names: str) -> None:
    certificate, key, names_file = (directory / f"{name}{end}" for end in (".crt", ".key", ".names"))
    named = await asyncio.to_thread(_read_if_there, names_file)
    if named == names and await asyncio.to_thread(certificate.exists) and await _is_fresh(certificate):
        return
    extensions = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"extendedKeyUsage={usage}"]
    extensions += ["-addext", "keyUsage=critical,digitalSignature"]
    if names:
        extensions += ["-addext", f"subjectAltName={names}"]
    await _openssl(
        *("req", "-x509", *_CURVE, "-days", str(_LEAF_DAYS), "-subj", subject, *extensions),
        *("-CA", str(directory / "ca.crt"), "-CAkey", str(directory / "ca.key")),
        *("-keyout", str(key), "-out", str(certificate)),
    )
    await asyncio.to_thread(names_file.write_text, names)


def _read_if_there(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


async def _is_fresh(certificate: Path) -> bool:
    try:
        await _openssl("x509", "-in", str(certificate), "-noout", "-checkend", str(_RENEW_BEFORE_SECONDS))
    except PkiFailed:
        return False
    return True


async def _openssl(*arguments: str) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            "openssl",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            umask=0o077,
        )
    except FileNotFoundError:
        raise PkiFailed("the openssl program is needed to make certificates and was not found") from None
    try:
        async with asyncio.timeout(_SECONDS):
            _, stderr = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise PkiFailed(f"openssl {arguments[0]} did not finish in {_SECONDS:.0f} s") from None
    if process.returncode:
        raise PkiFailed(f"openssl {arguments[0]} failed: {stderr.decode(errors='replace').strip()[-300:]}")


def _read_tokens(directory: Path) -> Credentials:
    """Reads the static token file; creates it with one user of each role if it does not exist."""
    path = directory / "tokens.csv"
    if not path.exists():
        for name, group in GROUPS.items():
            add_user(path, name, group)
    tokens = TokenFile(path)
    return Credentials(directory, tokens.of("admin"), tokens.of("reader"), tokens, _account_key(directory / "sa.key"))


def add_user(path: Path, name: str, group: str) -> str:
    """Adds a user to a static token file and returns the new token. Raises OSError."""
    token = secrets.token_urlsafe(32)
    before = path.read_text() if path.exists() else ""
    if before and not before.endswith("\n"):
        before += "\n"
    write_private(path, f'{before}{token},{name},{name},"{group}"\n')
    return token


def _account_key(path: Path) -> bytes:
    if not path.exists():
        write_private(path, secrets.token_hex(_ACCOUNT_KEY_BYTES))
    return bytes.fromhex(path.read_text())


def write_private(path: Path, text: str) -> None:
    """Replaces a file atomically; only its owner can read it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
