"""Keys and certificates for etcd in a lab, made with `openssl`: one authority, members, a client."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from nodeagent.lab.net.network_namespaces import LabError

NEW = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365")
AUTHORITY = "ca"
CLIENT = "client"


def certificate(directory: Path, name: str) -> Path:
    """Where that of the authority, the client, or a member is."""
    return directory / f"{name}.crt"


def key(directory: Path, name: str) -> Path:
    """Its key."""
    return directory / f"{name}.key"


def make_certificates(directory: Path, members: Mapping[str, str]) -> None:
    """New ones. members: their addresses by name; they show the same one to clients and to each other.

    Raises LabError.
    """
    _make(directory, AUTHORITY, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    for name, address in {**members, CLIENT: ""}.items():
        extensions = ["-addext", "basicConstraints=critical,CA:FALSE"]
        extensions += ["-addext", f"subjectAltName=IP:{address}"] if address else []
        signer = ["-CA", str(certificate(directory, AUTHORITY)), "-CAkey", str(key(directory, AUTHORITY))]
        _make(directory, name, *signer, *extensions)


def _make(directory: Path, name: str, *options: str) -> None:
    files = ["-keyout", str(key(directory, name)), "-out", str(certificate(directory, name))]
    made = subprocess.run([*NEW, "-subj", f"/CN={name}", *files, *options], capture_output=True, text=True, check=False)
    if made.returncode:
        raise LabError(f"openssl cannot make the certificate of {name}: {made.stderr.strip()}")
