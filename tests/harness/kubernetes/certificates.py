"""Keys, certificates and kubeconfigs of a cluster, made with `openssl`: one authority, the API server, one client for each part."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nodeagent.lab.certificates import NEW, certificate, key
from nodeagent.lab.net.network_namespaces import LabError

AUTHORITY = "ca"
SERVER = "kube-apiserver"
ACCOUNTS = "service-accounts"
ADMINISTRATOR = "administrator"


@dataclass(frozen=True, slots=True)
class Certificates:
    """In a directory. `server`: the URL that clients call."""

    directory: Path
    server: str

    def make(self, names: Iterable[str]) -> None:
        """The authority, the key of service accounts, and the API server's, which shows these names and addresses.

        Raises LabError.
        """
        self.directory.mkdir(parents=True)
        self._new(AUTHORITY, "/CN=kubernetes", "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature")
        self._new(ACCOUNTS, "/CN=service-accounts")
        self._signed(SERVER, f"/CN={SERVER}", "-addext", f"subjectAltName={','.join(names)}")

    def client(self, name: str, user: str, *groups: str) -> Path:
        """The kubeconfig of a new client. Raises LabError."""
        self._signed(name, f"{''.join(f'/O={group}' for group in groups)}/CN={user}")
        cluster = {"server": self.server, "certificate-authority": str(certificate(self.directory, AUTHORITY))}
        shown = {
            "client-certificate": str(certificate(self.directory, name)),
            "client-key": str(key(self.directory, name)),
        }
        path = self.directory / f"{name}.kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": name, "user": shown}],
            "contexts": [{"name": name, "context": {"cluster": "cluster", "user": name}}],
            "current-context": name,
        }
        path.write_text(json.dumps(document, indent=1))
        return path

    def certificate(self, name: str) -> str:
        """Where one is."""
        return str(certificate(self.directory, name))

    def key(self, name: str) -> str:
        """Where its key is."""
        return str(key(self.directory, name))

    def _signed(self, name: str, subject: str, *options: str) -> None:
        signer = ("-CA", self.certificate(AUTHORITY), "-CAkey", self.key(AUTHORITY))
        self._new(name, subject, *signer, "-addext", "basicConstraints=critical,CA:FALSE", *options)

    def _new(self, name: str, subject: str, *options: str) -> None:
        files = ("-keyout", self.key(name), "-out", self.certificate(name))
        made = subprocess.run([*NEW, "-subj", subject, *files, *options], capture_output=True, text=True, check=False)
        if made.returncode:
            raise LabError(f"openssl cannot make the certificate of {name}: {made.stderr.strip()}")
