"""Reads which API server to use, how it is trusted, and the credentials, from a kubeconfig file or from the pod of the agent.

Everything the file names is checked while loading, so that a mistake is one line at the start and not a connection
error later. Format: k8s.io/client-go tools/clientcmd/api/v1 types.go. Not supported, and refused rather than ignored:
auth-provider plugins (removed from client-go in 1.26) and impersonation.
"""

import os
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field
from yarl import URL

from nodeagent.model.text import printable
from nodeagent.proxy.source.client.api_errors import KubeconfigError
from nodeagent.proxy.source.client.credentials import (
    ClientCertificate,
    CredentialSource,
    FixedCredential,
    TokenFile,
    fits_header,
)
from nodeagent.proxy.source.client.exec_plugin import ExecCommand, ExecPlugin
from nodeagent.proxy.source.client.proxy import is_usable_proxy, without_password
from nodeagent.proxy.source.client.server_choice import Server
from nodeagent.proxy.source.client.tls import TlsTrust, check_authority, check_client_certificate
from nodeagent.runtime.bounded_file import read_whole
from nodeagent.wire.yaml.yaml_documents import YamlFault, documents

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

N = TypeVar("N", "_NamedCluster", "_NamedUser", "_NamedContext")


class ClusterAccess(Struct, frozen=True):
    """How to reach the API server of a cluster. server: URL without a trailing slash, possibly with a path. proxy: URL of an HTTP
    proxy, None for a direct connection unless the environment names one (`nodeagent.proxy.source.client.proxy`). others: further
    servers of the same cluster."""

    server: str
    trust: TlsTrust
    credentials: CredentialSource
    proxy: str | None = None
    others: tuple[Server, ...] = ()

    @property
    def servers(self) -> tuple[Server, ...]:
        return (Server(self.server, self.proxy), *self.others)


class _Cluster(Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""
    extensions: list[dict[str, object]] | None = None


class _ExecVariable(Struct):
    name: str
    value: str = ""


class _Exec(Struct, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[_ExecVariable] | None = None
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class _User(Struct, rename="kebab"):
    token: str = ""
    token_file: str = field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: _Exec | None = None
    auth_provider: object = None
    impersonated_user: str = field(default="", name="as")


class _Context(Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(Struct):
    name: str
    cluster: _Cluster


class _NamedUser(Struct):
    name: str
    user: _User


class _NamedContext(Struct):
    name: str
    context: _Context


class _Document(Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


def utc_now() -> datetime:
    return datetime.now(UTC)


def context_names(path: Path) -> list[str]:
    """Returns the names of all contexts. Raises KubeconfigError."""
    return [one.name for one in _File(path).read().contexts or ()]


def context_namespace(path: Path, context: str | None = None) -> str:
    """Returns the namespace of a context, which kubectl uses for objects that are named without one; empty if it sets none.

    Raises KubeconfigError.
    """
    document = _File(path).read()
    name = context or document.current_context
    return next((one.context.namespace for one in document.contexts or () if one.name == name), "")


def load_kubeconfig(path: Path, context: str | None = None, *, now: Callable[[], datetime] = utc_now) -> ClusterAccess:
    """Returns the access for this context of the file (None: the current one). Blocks on small files.

    Raises KubeconfigError, one line naming file and field.
    """
    file = _File(path)
    document = file.read()
    name = context or document.current_context
    if not name:
        raise file.error("current-context", "not set, and no context was given")
    named_at = "" if context else f" (from current-context of {path})"
    _, chosen = _find(file, "contexts", document.contexts, name, named_at)
    at = f"contexts[{name}].context"
    if not chosen.context.cluster:
        raise file.error(f"{at}.cluster", "not set")
    cluster_at, cluster = _find(file, "clusters", document.clusters, chosen.context.cluster, f" (from {at})")
    cluster_at += ".cluster"
    trust = _trust(file, cluster_at, cluster.cluster)
    server = _server(file, f"{cluster_at}.server", cluster.cluster.server)
    credentials: CredentialSource = FixedCredential()
    if chosen.context.user:
        user_at, user = _find(file, "users", document.users, chosen.context.user, f" (from {at})")
        user_at += ".user"
        credentials = _credentials(file, user_at, user.user, cluster.cluster, now)
    proxy = _proxy(file, f"{cluster_at}.proxy-url", cluster.cluster.proxy_url)
    return ClusterAccess(server, trust, credentials, proxy)


def in_cluster(environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIRECTORY) -> ClusterAccess:
    """Returns the access of pods to the API server, with the service account of this pod.

    Beware that this address is itself a Service: a proxy that reaches the API server through it depends on its own
    rules (they stay in the kernel while the agent restarts, but not over a reboot).

    Raises KubeconfigError if this is not a pod with a service account.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise KubeconfigError("in-cluster access: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token, authority = directory / "token", directory / "ca.crt"
    for path in (token, authority):
        if not os.access(path, os.R_OK):
            raise KubeconfigError(f"in-cluster access: {path}: not readable")
    bracketed = f"[{host}]" if ":" in host else host
    return ClusterAccess(f"https://{bracketed}:{port}", TlsTrust(authority=authority), TokenFile(token))


class _File:
    """The kubeconfig file: makes errors that name it, and resolves paths relative to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def directory(self) -> Path:
        return self._path.absolute().parent

    def error(self, where: str, what: str) -> KubeconfigError:
        line = f"kubeconfig {self._path}: {where}: {what}" if where else f"kubeconfig {self._path}: {what}"
        return KubeconfigError(printable(line))

    def read(self) -> _Document:
        """Returns the content as kubectl reads it: of a repeated key the last one counts, null values are absent."""
        try:
            text = read_whole(self._path).decode("utf-8-sig")
        except OSError as error:
            raise self.error("", error.strerror or "not readable") from error
        except UnicodeDecodeError as error:
            raise self.error("", "not UTF-8 text") from error
        found = list(islice(documents(text, last_wins=True), 2))
        first = found[0] if found else None
        if isinstance(first, YamlFault):
            raise self.error(f"line {first.line}", first.reason)
        if first is None or first.value is None:
            raise self.error("", "the file is empty")
        if len(found) > 1:
            raise self.error("", "more than one YAML document")
        try:
            return msgspec.convert(first.value, _Document)
        except msgspec.ValidationError as error:
            raise self.error(*_split(str(error))) from error

    def path_of(self, text: str) -> Path:
        return self.directory / Path(text)

    def readable(self, where: str, text: str) -> Path:
        path = self.path_of(text)
        try:
            read_whole(path)
        except OSError as error:
            raise self.error(where, f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise self.error(where, f"{text!r} is not a path") from error
        return path

    def inline_or_path(self, where: str, data: str, path: str) -> Path | bytes | None:
        """Returns ``<field>-data`` (base64) if set, else the path in ``<field>``, as client-go does; None without both."""
        if data:
            try:
                return b64decode("".join(data.split()), validate=True)
            except (Base64Error, ValueError) as error:
                raise self.error(f"{where}-data", "not valid base64") from error
        return self.readable(where, path) if path else None


def _split(message: str) -> tuple[str, str]:
    """Returns (field, fault) from msgspec's ``Expected `str`, got `int` - at `$.users[0].user.token```."""
    fault, _, place = message.partition(" - at `$")
    fault = re.sub(r"^E", "e", fault.replace("`", ""))
    return place.rstrip("`").lstrip("."), fault


def _find(file: _File, section: str, entries: list[N] | None, name: str, asked_by: str) -> tuple[str, N]:
    """Returns where the first entry of that name is, and the entry. Raises KubeconfigError if there is no such entry."""
    for index, entry in enumerate(entries or []):
        if entry.name == name:
            return f"{section}[{index}]", entry
    raise file.error(section, f"no entry is named {name!r}{asked_by}")


def _server(file: _File, at: str, server: str) -> str:
    try:
        parts = urlsplit(server)
        port = parts.port
        URL(server)
    except ValueError as error:
        raise file.error(at, f"{server!r} is not a URL ({error})") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise file.error(at, f"{server!r} is not an http or https URL" if server else "not set")
    return server.rstrip("/")


def _proxy(file: _File, at: str, proxy: str) -> str | None:
    if not proxy:
        return None
    if not is_usable_proxy(proxy):
        shown = without_password(proxy)
        raise file.error(at, f"{shown!r} is not the URL of an HTTP proxy; others are not supported")
    return proxy


def _trust(file: _File, at: str, cluster: _Cluster) -> TlsTrust:
    field_at = f"{at}.certificate-authority"
    authority = file.inline_or_path(field_at, cluster.certificate_authority_data, cluster.certificate_authority)
    if authority is not None:
        if cluster.insecure_skip_tls_verify:
            raise file.error(f"{at}.insecure-skip-tls-verify", "true together with a certificate authority")
        fault = check_authority(authority if isinstance(authority, bytes) else authority.read_bytes())
        if fault:
            if isinstance(authority, bytes):
                raise file.error(f"{field_at}-data", fault)
            raise file.error(field_at, f"{authority}: {fault}")
    return TlsTrust(authority, cluster.tls_server_name or None, cluster.insecure_skip_tls_verify)


def _credentials(file: _File, at: str, user: _User, cluster: _Cluster, now: Callable[[], datetime]) -> CredentialSource:
    if user.auth_provider is not None:
        raise file.error(f"{at}.auth-provider", "not supported; use an exec plugin")
    if user.impersonated_user:
        raise file.error(f"{at}.as", "impersonation is not supported")
    source = _bearer(file, at, user, cluster, now)
    certificate = file.inline_or_path(f"{at}.client-certificate", user.client_certificate_data, user.client_certificate)
    key = file.inline_or_path(f"{at}.client-key", user.client_key_data, user.client_key)
    if certificate is None and key is None:
        return source
    if certificate is None:
        raise file.error(f"{at}.client-certificate", "not set, but there is a client key")
    if key is None:
        raise file.error(f"{at}.client-key", "not set, but there is a client certificate")
    fault = check_client_certificate(
        certificate if isinstance(certificate, bytes) else certificate.read_bytes(),
        key if isinstance(key, bytes) else key.read_bytes(),
    )
    if fault:
        raise file.error(at, fault)
    return ClientCertificate(source, certificate, key)


def _bearer(file: _File, at: str, user: _User, cluster: _Cluster, now: Callable[[], datetime]) -> CredentialSource:
    """Returns the token, password or plugin. A token file has precedence over a token, and both over anything else."""
    if user.token_file:
        return TokenFile(file.readable(f"{at}.tokenFile", user.token_file))
    if user.token:
        if not fits_header(user.token):
            raise file.error(f"{at}.token", "holds a character that no token can have")
        return FixedCredential.token(user.token)
    if user.exec is not None:
        return ExecPlugin(_exec_command(file, f"{at}.exec", user.exec, cluster), now=now)
    if user.username:
        return FixedCredential.password(user.username, user.password)
    return FixedCredential()


def _exec_command(file: _File, at: str, plugin: _Exec, cluster: _Cluster) -> ExecCommand:
    if plugin.api_version not in EXEC_API_VERSIONS:
        raise file.error(f"{at}.apiVersion", f"{plugin.api_version!r} is not one of {', '.join(EXEC_API_VERSIONS)}")
    if plugin.interactive_mode == "Always":
        raise file.error(f"{at}.interactiveMode", "Always: the agent has no terminal to ask on")
    if plugin.interactive_mode not in {"", "Never", "IfAvailable"}:
        raise file.error(f"{at}.interactiveMode", f"{plugin.interactive_mode!r} is not Never, IfAvailable or Always")
    if not plugin.command:
        raise file.error(f"{at}.command", "not set")
    # As in client-go: a command with a slash is a path relative to the kubeconfig, one without is looked up in PATH.
    command = str(file.path_of(plugin.command)) if "/" in plugin.command else plugin.command
    return ExecCommand(
        api_version=plugin.api_version,
        command=command,
        arguments=tuple(plugin.args or ()),
        environment={variable.name: variable.value for variable in plugin.env or ()},
        directory=file.directory,
        install_hint=" ".join(plugin.install_hint.split()) or None,
        cluster=_cluster_information(cluster, file) if plugin.provide_cluster_info else None,
    )


def _cluster_information(cluster: _Cluster, file: _File) -> dict[str, object]:
    """Returns spec.cluster of the ExecCredential for the plugin, without absent fields."""
    authority = cluster.certificate_authority_data
    if not authority and cluster.certificate_authority:
        authority = msgspec.to_builtins(file.path_of(cluster.certificate_authority).read_bytes())
    information: dict[str, object] = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": cluster.proxy_url,
        "config": _exec_extension(cluster),
    }
    return {name: value for name, value in information.items() if value}


def _exec_extension(cluster: _Cluster) -> object:
    for extension in cluster.extensions or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            return extension.get("extension")
    return None
