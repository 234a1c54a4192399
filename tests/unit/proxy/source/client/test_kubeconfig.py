"""What a kubeconfig says, and the one line that each mistake in it is answered with."""

import asyncio
import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.proxy.source.client.api_errors import CredentialsError, KubeconfigError
from nodeagent.proxy.source.client.credentials import Credential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, in_cluster, load_kubeconfig
from nodeagent.proxy.source.client.tls import TlsTrust

PEM = Path(__file__).parents[4] / "contract/source/tls"
CA = (PEM / "ca.pem").read_bytes()
CERTIFICATE, KEY = (PEM / "client.pem").read_bytes(), (PEM / "client-key.pem").read_bytes()
V1 = "client.authentication.k8s.io/v1"


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def document(user: Any = None, **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api.test:6443/", **cluster}}],
        "users": [{"name": "u", "user": user if user is not None else {}}],
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Holds a kubeconfig's neighbours: certificates, a token and a plugin."""
    for name, content in (("ca.pem", CA), ("client.pem", CERTIFICATE), ("client-key.pem", KEY), ("token", b"secret\n")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "second-key.pem").write_bytes((PEM / "second-key.pem").read_bytes())
    (tmp_path / "text").write_text("no PEM")
    return tmp_path


def load(directory: Path, content: object, context: str | None = None) -> ClusterAccess:
    path = directory / "config"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return load_kubeconfig(path, context)


def credential_of(access: ClusterAccess) -> Credential:
    return asyncio.run(access.credentials.current())


@pytest.mark.parametrize(
    ("user", "credential"),
    [
        pytest.param({}, Credential(), id="nobody"),
        pytest.param({"token": "t"}, Credential("Bearer t"), id="token"),
        pytest.param({"tokenFile": "token", "token": "t"}, Credential("Bearer secret"), id="a token file goes first"),
        pytest.param({"username": "me", "password": "pw"}, Credential("Basic bWU6cHc="), id="password"),
        pytest.param(
            {"client-certificate": "client.pem", "client-key": "client-key.pem"},
            Credential(None, (CERTIFICATE, KEY)),
            id="client certificate in files beside the kubeconfig",
        ),
        pytest.param(
            {
                "client-certificate-data": encoded(CERTIFICATE),
                "client-certificate": "/nonexistent",
                "client-key-data": encoded(KEY),
            },
            Credential(None, (CERTIFICATE, KEY)),
            id="inline client certificate goes first",
        ),
        pytest.param(
            {"token": "t", "client-certificate": "client.pem", "client-key": "client-key.pem"},
            Credential("Bearer t", (CERTIFICATE, KEY)),
            id="token and client certificate",
        ),
    ],
)
def test_the_credentials_of_the_kubeconfig(directory: Path, user: dict[str, str], credential: Credential) -> None:
    assert credential_of(load(directory, document(user))) == credential


@pytest.mark.parametrize(
    ("cluster", "trust"),
    [
        pytest.param({}, TlsTrust(), id="the system's authorities"),
        pytest.param({"certificate-authority-data": encoded(CA)}, TlsTrust(CA), id="inline authority"),
        pytest.param({"tls-server-name": "api"}, TlsTrust(None, "api"), id="server name"),
        pytest.param({"insecure-skip-tls-verify": True}, TlsTrust(insecure=True), id="anyone"),
    ],
)
def test_whom_we_believe(directory: Path, cluster: dict[str, Any], trust: TlsTrust) -> None:
    access = load(directory, document(**cluster))
    assert (access.server, access.trust, access.proxy) == ("https://api.test:6443", trust, None)


def test_paths_are_relative_to_the_kubeconfig(directory: Path) -> None:
    access = load(directory, document(**{"certificate-authority": "ca.pem", "proxy-url": "http://proxy:3128"}))
    assert access.trust == TlsTrust(directory / "ca.pem")
    assert access.proxy == "http://proxy:3128"


def test_another_context_can_be_asked_for(directory: Path) -> None:
    content = document()
    content["contexts"].append({"name": "other", "context": {"cluster": "d"}})
    content["clusters"].append({"name": "d", "cluster": {"server": "http://d:8080"}})
    assert load(directory, content, "other").server == "http://d:8080"
    assert load(directory, content).server == "https://api.test:6443"


def test_scalars_are_read_as_kubectl_reads_them(directory: Path) -> None:
    content = """
current-context: 2026-01-01
contexts:
- name: 2026-01-01
  context: {cluster: 1:30, user: u}
clusters:
- name: 1:30
  cluster: {server: "http://127.0.0.1:1", server: "http://127.0.0.1:2", tls-server-name: null}
users:
- {name: u, user: {token: 2026-13-45}}
"""
    access = load(directory, content)
    assert access.server == "http://127.0.0.1:2"
    assert credential_of(access) == Credential("Bearer 2026-13-45")


def test_aliases_of_aliases_are_refused(directory: Path) -> None:
    content = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))
    with pytest.raises(KubeconfigError, match=r"line 5: aliases stand for more than 100000 values"):
        load(directory, content)


def exec_user(**more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": V1, "command": "plugin", "interactiveMode": "Never", **more}}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        pytest.param("", "the file is empty", id="empty"),
        pytest.param("a: [", "line 1: did not find expected node content", id="not YAML"),
        pytest.param(
            "a:\n b: c\n  d: e\n", "line 3: mapping values are not allowed in this context", id="YAML with a line"
        ),
        pytest.param("[]", "expected object, got array", id="a list"),
        pytest.param("0x_", "expected object, got str", id="a number without digits"),
        pytest.param("!!int ", "the file is empty", id="a number that is empty"),
        pytest.param("!!timestamp x", "line 1: the tag tag:yaml.org,2002:timestamp is not supported", id="a tag"),
        pytest.param("a: 1\n---\nb: 2", "more than one YAML document", id="two documents"),
        pytest.param({"current-context": "x\ny"}, "contexts: no entry is named 'x\\ny'", id="a name of two lines"),
        pytest.param(
            document({"tokenFile": "a\0b"}), "users[0].user.tokenFile: 'a\\x00b' is not a path", id="NUL in a path"
        ),
        pytest.param(document({"token": "a\nb"}), "users[0].user.token: holds a character", id="a token of two lines"),
        pytest.param({}, "current-context: not set, and no context was given", id="no context"),
        pytest.param(
            {"current-context": "x"},
            "contexts: no entry is named 'x' (from current-context of {path})",
            id="unknown context",
        ),
        pytest.param(
            {**document(), "clusters": []},
            "clusters: no entry is named 'c' (from contexts[main].context)",
            id="unknown cluster",
        ),
        pytest.param(
            {**document(), "users": None},
            "users: no entry is named 'u' (from contexts[main].context)",
            id="unknown user",
        ),
        pytest.param(document({"token": 5}), "users[0].user.token: expected str, got int", id="wrong type"),
        pytest.param(
            document({"client-certificate-data": "MTIz", "client-key-data": "%"}),
            "users[0].user.client-key-data: not valid base64",
            id="bad base64",
        ),
        pytest.param(
            document({"client-certificate": "client.pem"}),
            "users[0].user.client-key: not set, but there is a client certificate",
            id="half a pair",
        ),
        pytest.param(
            document({"client-certificate": "client.pem", "client-key": "second-key.pem"}),
            "users[0].user: client certificate and key: KEY_VALUES_MISMATCH",
            id="a key of another certificate",
        ),
        pytest.param(
            document({"tokenFile": "none"}),
            "users[0].user.tokenFile: {directory}/none: No such file or directory",
            id="missing token file",
        ),
        pytest.param(
            document(**{"certificate-authority": "missing.pem"}),
            "clusters[0].cluster.certificate-authority: {directory}/missing.pem: No such file or directory",
            id="missing authority",
        ),
        pytest.param(
            document(**{"certificate-authority": "text"}),
            "clusters[0].cluster.certificate-authority: {directory}/text: not a PEM certificate",
            id="an invalid authority",
        ),
        pytest.param(
            document(**{"certificate-authority": "ca.pem", "insecure-skip-tls-verify": True}),
            "clusters[0].cluster.insecure-skip-tls-verify: true together with a certificate authority",
            id="trust that contradicts itself",
        ),
        pytest.param(document(server=""), "clusters[0].cluster.server: not set", id="no server"),
        pytest.param(
            document(server="api:6443"),
            "clusters[0].cluster.server: 'api:6443' is not an http or https URL",
            id="a server without scheme",
        ),
        pytest.param(
            document(**{"proxy-url": "socks5://p"}),
            "clusters[0].cluster.proxy-url: 'socks5://p' is not the URL of an HTTP proxy; others are not supported",
            id="a SOCKS proxy",
        ),
        pytest.param(
            document(exec_user(interactiveMode="Always")),
            "users[0].user.exec.interactiveMode: Always: the agent has no terminal to ask on",
            id="a plugin that asks questions",
        ),
        pytest.param(
            document(exec_user(apiVersion="client.authentication.k8s.io/v1alpha1")),
            "users[0].user.exec.apiVersion: 'client.authentication.k8s.io/v1alpha1' is not one of "
            "client.authentication.k8s.io/v1, client.authentication.k8s.io/v1beta1",
            id="an old plugin",
        ),
        pytest.param(
            document({"auth-provider": {"name": "gcp"}}),
            "users[0].user.auth-provider: not supported; use an exec plugin",
            id="auth-provider",
        ),
        pytest.param(document({"as": "root"}), "users[0].user.as: impersonation is not supported", id="impersonation"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_field(directory: Path, content: object, line: str) -> None:
    with pytest.raises(KubeconfigError) as caught:
        load(directory, content)
    path = directory / "config"
    assert str(caught.value).startswith(f"kubeconfig {path}: {line.format(path=path, directory=directory)}")
    assert "\n" not in str(caught.value)


def test_a_kubeconfig_without_end(directory: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"^kubeconfig /dev/zero: it has more than 4 MiB$"):
        load_kubeconfig(Path("/dev/zero"))
    named = document({"client-certificate": "/dev/zero", "client-key": "/dev/zero"})
    with pytest.raises(KubeconfigError, match=r"client-certificate: /dev/zero: it has more than 4 MiB$"):
        load(directory, named)


def test_a_missing_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"^kubeconfig .*/none: No such file or directory$"):
        load_kubeconfig(tmp_path / "none")


@pytest.mark.parametrize("host", [pytest.param("10.96.0.1", id="IPv4"), pytest.param("fd00::1", id="IPv6")])
def test_a_pod_learns_where_the_server_is(directory: Path, host: str) -> None:
    (directory / "ca.crt").write_bytes(CA)
    access = in_cluster({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}, directory)
    assert access.server == (f"https://[{host}]:443" if ":" in host else f"https://{host}:443")
    assert access.trust == TlsTrust(directory / "ca.crt")
    assert credential_of(access) == Credential("Bearer secret")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        pytest.param({}, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set", id="no pod"),
        pytest.param(
            {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, "ca.crt: not readable", id="no account"
        ),
    ],
)
def test_no_service_account(directory: Path, environment: dict[str, str], message: str) -> None:
    with pytest.raises(KubeconfigError, match=message):
        in_cluster(environment, directory)


def plugin(directory: Path, script: str, **more: Any) -> ClusterAccess:
    path = directory / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return load(directory, document(exec_user(command="./plugin", **more), server="https://api.test:6443"))


def test_a_plugin_gets_its_arguments_and_environment_and_says_who_we_are(directory: Path) -> None:
    script = f"""echo run >> runs; printf '%s' "$KUBERNETES_EXEC_INFO" > request
    echo '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"'"$1-$EXTRA"'"}}}}'"""
    access = plugin(directory, script, args=["a"], env=[{"name": "EXTRA", "value": "b"}], provideClusterInfo=True)

    async def main() -> None:
        first, second = await asyncio.gather(access.credentials.current(), access.credentials.current())
        assert first is second
        assert first == Credential("Bearer a-b")
        access.credentials.refused()
        await access.credentials.current()

    asyncio.run(main())
    assert (directory / "runs").read_text() == "run\n" * 2
    assert (directory / "request").read_text() == (
        f'{{"apiVersion":"{V1}","kind":"ExecCredential",'
        '"spec":{"interactive":false,"cluster":{"server":"https://api.test:6443"}}}'
    )


def test_a_plugin_runs_again_when_its_credential_expires(directory: Path) -> None:
    script = f"""echo run >> runs
    echo '{{"apiVersion":"{V1}","kind":"ExecCredential",
            "status":{{"token":"t","expirationTimestamp":"2026-11-20T12:00:00Z"}}}}'"""
    plugin(directory, script)
    clock = [datetime(2026, 11, 20, 11, 0, tzinfo=UTC)]
    access = load_kubeconfig(directory / "config", now=lambda: clock[0])

    async def main() -> None:
        await access.credentials.current()
        await access.credentials.current()
        clock[0] = datetime(2026, 11, 20, 11, 59, 55, tzinfo=UTC)
        await access.credentials.current()

    asyncio.run(main())
    assert (directory / "runs").read_text() == "run\n" * 2


@pytest.mark.parametrize(
    ("script", "why"),
    [
        pytest.param("echo 'no login' >&2; exit 3", "exit status 3: no login", id="it fails"),
        pytest.param("echo hello", "its output is not an ExecCredential: JSON is malformed", id="not JSON"),
        pytest.param(
            """echo '{"apiVersion":"v1","kind":"Pod"}'""",
            f"its output is Pod of v1, not ExecCredential of {V1}",
            id="a pod",
        ),
        pytest.param(
            f"""echo '{{"apiVersion":"{V1}","kind":"ExecCredential"}}'""", "its output has no status", id="no status"
        ),
        pytest.param(
            f"""echo '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{}}}}'""",
            "status has neither a token nor a client certificate",
            id="an empty status",
        ),
        pytest.param(
            f"""echo '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"clientCertificateData":"x"}}}}'""",
            "status has a client certificate without key",
            id="half a pair",
        ),
    ],
)
def test_a_plugin_that_gives_no_credential(directory: Path, script: str, why: str) -> None:
    access = plugin(directory, script)
    with pytest.raises(CredentialsError) as caught:
        credential_of(access)
    assert str(caught.value).startswith(f"exec plugin {directory}/./plugin: {why}".replace("/./", "/"))


def test_a_plugin_that_is_not_installed_says_how_to_get_it(directory: Path) -> None:
    access = load(directory, document(exec_user(command="no-such-plugin", installHint="install\n  it")))
    with pytest.raises(CredentialsError, match=r"^exec plugin no-such-plugin: No such file or directory; install it$"):
        credential_of(access)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"args": ["a\0b"]}, id="NUL in an argument"),
        pytest.param({"env": [{"name": "A=B", "value": ""}]}, id="a variable that cannot be one"),
    ],
)
def test_a_plugin_that_cannot_be_started(directory: Path, more: dict[str, Any]) -> None:
    with pytest.raises(CredentialsError, match=r"^exec plugin "):
        credential_of(plugin(directory, "true", **more))


def test_a_credential_that_ended_before_there_was_time(directory: Path) -> None:
    status = '{"token":"a","expirationTimestamp":"0001-01-01T00:00:00Z"}'
    access = plugin(directory, f"""echo '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{status}}}'""")

    async def main() -> None:
        for _ in range(2):
            credential = await access.credentials.current()
            assert (credential.authorization, credential.expires) == ("Bearer a", datetime.min.replace(tzinfo=UTC))

    asyncio.run(main())
