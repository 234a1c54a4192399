"""Kubeconfigs: what is loaded can be used for a request, and what is not is one line of a KubeconfigError."""

import asyncio
import tempfile
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

from nodeagent.proxy.source.client.api_errors import CredentialsError, KubeconfigError
from nodeagent.proxy.source.client.exchange import url_of
from nodeagent.proxy.source.client.exec_plugin import ExecPlugin
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, load_kubeconfig
from nodeagent.proxy.source.client.proxy import environment_proxy
from nodeagent.proxy.source.client.tls import TlsContexts
from tests.harness.fuzzing.mutation import Target

PEM = Path(__file__).parents[2] / "contract/source/tls"
AUTHORITY, CERTIFICATE, KEY = (
    b64encode((PEM / name).read_bytes()) for name in ("ca.pem", "client.pem", "client-key.pem")
)
HEAD = b"""\
apiVersion: v1
kind: Config
current-context: main
contexts:
- {name: main, context: {cluster: c, user: u}}
clusters:
- name: c
  cluster:
    server: https://api.test:6443/path
    tls-server-name: api
"""
SEEDS = (
    HEAD + b"users:\n- name: u\n  user: {token: abc, username: me, password: pw}\n",
    HEAD + b"    certificate-authority-data: " + AUTHORITY + b"\n    proxy-url: http://proxy:3128\n"
    b"users: [{name: u, user: {client-certificate-data: " + CERTIFICATE + b", client-key-data: " + KEY + b"}}]\n",
    HEAD + b"    extensions: [{name: client.authentication.k8s.io/exec, extension: {a: 1}}]\nusers:\n- name: u\n  user:\n"
    b"    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: ./plugin\n      args: [a]\n"
    b"      env: [{name: A, value: b}]\n      provideClusterInfo: true\n",
    (b'{"current-context":"a","contexts":[{"name":"a","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":'
    b'{"tokenFile":"token"}}],"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1"}}]}'),
)  # fmt: skip
TOKENS = [
    b"[", b"{", b"}", b"]", b'"', b"'", b": ", b"- ", b"? ", b",", b"\n", b"\t", b"&a ", b"*a", b"<<: ", b"--- ", b"|\n", b"~",
    b"!!int ", b"!!bool x", b"!!timestamp ", b"!!binary ", b"0x_", b"2026-13-45", b"1:99", b"9" * 400, b"1e999", b"null",
    b'"\\0"', b'"\\n"', b'"\\ud800"', b"\xff", b"\xef\xbb\xbf", b"\x00", b"\x1b", b"%TAG ! x\n", b"token: ", b"tokenFile: ",
    b"client-key: ", b"http://[::1", b"http://" + b"a" * 64, b"http://a b", b"@", b"%", b":99999", b"\xc3\xa4", b"\xe2\x80\xae",
]  # fmt: skip


def check(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config"
        path.write_bytes(data)
        (path.parent / "token").write_bytes(b"secret\n")
        try:
            access = load_kubeconfig(path)
        except KubeconfigError as error:
            refusal = str(error)
        else:
            refusal = "kubeconfig"
            _use(access)
        assert refusal.startswith("kubeconfig")
        assert refusal.isprintable()


def _use(access: ClusterAccess) -> None:
    """What a request needs of it."""
    with suppress(KubeconfigError):
        environment_proxy(
            access.server, {"HTTPS_PROXY": "proxy:1", "HTTP_PROXY": "proxy:1", "NO_PROXY": "a,10.0.0.0/8"}
        )
    for server in access.servers:
        url_of(server, "/api/v1/services", [("watch", "true")])
    with suppress(CredentialsError):
        TlsContexts(access.trust).context(None)
    if not isinstance(access.credentials, ExecPlugin):
        with suppress(CredentialsError):
            asyncio.run(access.credentials.current())


TARGETS = (Target("kubeconfigs", SEEDS, TOKENS, check),)
