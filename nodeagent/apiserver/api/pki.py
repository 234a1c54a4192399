"""Keys, certificates and tokens of a server, made on its first start and kept in its data directory."""

import os
import secrets
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from nodeagent.apiserver.api.authorization import ADMINS, AGENTS, READERS
from nodeagent.apiserver.api.token_file import TokenFile
from nodeagent.runtime import certificates

_CA_DAYS: Final = 3650
RENEW_BEFORE: Final = timedelta(days=30)
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


def prepare(directory: Path, addresses: Iterable[str]) -> Credentials:
    """Makes files in `directory` that are missing or about to expire; the certificate names `addresses`. Blocks.

    Raises CertificateFailed.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    authority = certificates.certificate(directory, certificates.AUTHORITY)
    if not authority.exists():
        certificates.make_authority(directory, "/CN=nodeagent-apiserver-ca", days=_CA_DAYS)
    try:
        ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise certificates.CertificateFailed(
            f"{authority}: not a certificate that can be read: put back the one that was there, or remove {directory} to have "
            "all keys and tokens made again"
        ) from error
    names = [f"DNS:{name}" for name in CLUSTER_NAMES]
    names += [f"IP:{ip_address(address)}" for address in sorted({"127.0.0.1", "::1", *addresses})]
    leaves = (
        ("server", "/CN=nodeagent-apiserver", "serverAuth", ",".join(names)),
        ("admin", f"/O={ADMINS}/CN=admin", "clientAuth", ""),
        ("reader", f"/O={READERS}/CN=reader", "clientAuth", ""),
    )
    with ThreadPoolExecutor(len(leaves)) as threads:
        for made in [threads.submit(_leaf, directory, *leaf) for leaf in leaves]:
            made.result()
    return _read_tokens(directory)


def _leaf(directory: Path, name: str, subject: str, usage: str, names: str) -> None:
    made, names_file = certificates.certificate(directory, name), directory / f"{name}.names"
    if names_file.exists() and names_file.read_text() == names and made.exists() and _is_fresh(made):
        return
    extensions = [f"extendedKeyUsage={usage}", "keyUsage=critical,digitalSignature"]
    extensions += [f"subjectAltName={names}"] if names else []
    certificates.make_certificate(directory, name, subject, *extensions)
    names_file.write_text(names)


def _is_fresh(made: Path) -> bool:
    try:
        certificates.openssl("x509", "-in", str(made), "-noout", "-checkend", str(int(RENEW_BEFORE.total_seconds())))
    except certificates.CertificateFailed:
        return False
    return True


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
