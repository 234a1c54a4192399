"""Makes keys and certificates with the `openssl` program (docs/decisions/0040-openssl-makes-the-certificates.md). Every call blocks."""

import subprocess
from pathlib import Path

AUTHORITY = "ca"
_NEW = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_SECONDS = 20.0


class CertificateFailed(Exception):
    """openssl failed; the text says why."""


def certificate(directory: Path, name: str) -> Path:
    """Returns the path of the certificate of that name."""
    return directory / f"{name}.crt"


def key(directory: Path, name: str) -> Path:
    """Returns the path of its key."""
    return directory / f"{name}.key"


def make_authority(directory: Path, subject: str = f"/CN={AUTHORITY}", *, days: int = 365) -> None:
    """Creates the certificate authority of the directory. Raises CertificateFailed."""
    _make(
        directory,
        AUTHORITY,
        subject,
        days,
        "basicConstraints=critical,CA:TRUE",
        "keyUsage=critical,keyCertSign,cRLSign",
    )


def make_certificate(directory: Path, name: str, subject: str, *extensions: str, days: int = 365) -> None:
    """Creates a certificate that the authority of the directory signs.

    extensions: as openssl-req(1) takes them, such as ``subjectAltName=IP:192.0.2.1``.
    Raises CertificateFailed.
    """
    signer = ("-CA", str(certificate(directory, AUTHORITY)), "-CAkey", str(key(directory, AUTHORITY)))
    _make(directory, name, subject, days, "basicConstraints=critical,CA:FALSE", *extensions, signer=signer)


def _make(directory: Path, name: str, subject: str, days: int, *extensions: str, signer: tuple[str, ...] = ()) -> None:
    files = ("-keyout", str(key(directory, name)), "-out", str(certificate(directory, name)))
    added = (word for extension in extensions for word in ("-addext", extension))
    openssl(*_NEW, "-days", str(days), "-subj", subject, *files, *signer, *added)


def openssl(*arguments: str) -> str:
    """Returns the output of openssl; only the user of this process can read the files that it makes. Raises CertificateFailed."""
    try:
        ran = subprocess.run(  # noqa: S603 - openssl, and arguments of our own
            ["openssl", *arguments],  # noqa: S607 - where the system has it
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            umask=0o077,
            check=False,
        )
    except FileNotFoundError:
        raise CertificateFailed("the openssl program is needed to make certificates and was not found") from None
    except subprocess.TimeoutExpired:
        raise CertificateFailed(f"openssl {arguments[0]} did not finish in {_SECONDS:.0f} s") from None
    if ran.returncode:
        raise CertificateFailed(f"openssl {arguments[0]} failed: {ran.stderr.decode(errors='replace').strip()[-300:]}")
    return ran.stdout.decode(errors="replace")
