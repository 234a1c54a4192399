"""Keys, certificates and kubeconfigs of a cluster, made with `openssl`: one authority, the API server, one client for each part."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nodeagent.runtime.certificates import AUTHORITY, certificate, key, make_authority, make_certificate

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

        Raises CertificateFailed.
        """
        self.directory.mkdir(parents=True)
        make_authority(self.directory, "/CN=kubernetes")
        make_certificate(self.directory, ACCOUNTS, "/CN=service-accounts")
        make_certificate(self.directory, SERVER, f"/CN={SERVER}", f"subjectAltName={','.join(names)}")

    def client(self, name: str, user: str, *groups: str) -> Path:
        """The kubeconfig of a new client. Raises CertificateFailed."""
        make_certificate(self.directory, name, f"{''.join(f'/O={group}' for group in groups)}/CN={user}")
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
