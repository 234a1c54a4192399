"""Reads which API server to use, how it is trusted, and the credentials, from a kubeconfig file or from the pod of the agent.

Everything the file names is checked while loading, so that a mistake is one line at the start and not a connection
error later. Not supported, and refused rather than ignored: auth-provider plugins (removed from client-go in 1.26) and impersonation.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from yarl import URL

from nodeagent.proxy.source.client.api_errors import KubeconfigError
from nodeagent.proxy.source.client.credentials import (
    ClientCertificate,
    CredentialSource,
    FixedCredential,
    TokenFile,
    fits_header,
)
from nodeagent.proxy.source.client.exec_plugin import ExecCommand, ExecPlugin
from nodeagent.proxy.source.client.kubeconfig_file import (
    Exec,
    Kubeconfig,
    KubeconfigCluster,
    KubeconfigEntry,
    KubeconfigFile,
    KubeconfigUser,
    T,
)
from nodeagent.proxy.source.client.proxy import is_usable_proxy, without_password
from nodeagent.proxy.source.client.server_choice import Server
from nodeagent.proxy.source.client.tls import TlsTrust, check_authority, check_client_certificate

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


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


def utc_now() -> datetime:
    return datetime.now(UTC)


def context_names(paths: Sequence[Path]) -> list[str]:
    """Returns the names of all contexts in these files. Raises KubeconfigError."""
    return [*Kubeconfig(paths).contexts]


def context_namespace(paths: Sequence[Path], context: str | None = None) -> str:
    """Returns the namespace of a context, which kubectl uses for objects that are named without one; empty if it sets none.

    Raises KubeconfigError.
    """
    kubeconfig = Kubeconfig(paths)
    chosen = kubeconfig.contexts.get(context or kubeconfig.current_context)
    return chosen.value.namespace if chosen else ""


def load_kubeconfig(
    paths: Path | Sequence[Path], context: str | None = None, *, now: Callable[[], datetime] = utc_now
) -> ClusterAccess:
    """Returns the access for this context (None: the current one) of a file, or of several that are merged. Blocks on small files.

    Raises KubeconfigError, one line naming file and field.
    """
    kubeconfig = Kubeconfig([paths] if isinstance(paths, Path) else paths)
    name = context or kubeconfig.current_context
    if not name:
        raise kubeconfig.error("current-context", "not set, and no context was given")
    named_at = "" if context else f" (from current-context of {kubeconfig.current_context_from})"
    chosen = _find(kubeconfig, "contexts", kubeconfig.contexts, name, named_at)
    at = f"contexts[{name}].context"
    if not chosen.value.cluster:
        raise chosen.file.error(f"{at}.cluster", "not set")
    cluster = _find(kubeconfig, "clusters", kubeconfig.clusters, chosen.value.cluster, f" (from {at})")
    trust = _trust(cluster.file, cluster.at, cluster.value)
    server = _server(cluster.file, f"{cluster.at}.server", cluster.value.server)
    credentials: CredentialSource = FixedCredential()
    if chosen.value.user:
        user = _find(kubeconfig, "users", kubeconfig.users, chosen.value.user, f" (from {at})")
        credentials = _credentials(user, cluster, now)
    proxy = _proxy(cluster.file, f"{cluster.at}.proxy-url", cluster.value.proxy_url)
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


def _find(
    kubeconfig: Kubeconfig, section: str, entries: Mapping[str, KubeconfigEntry[T]], name: str, asked_by: str
) -> KubeconfigEntry[T]:
    """Returns the entry of that name. Raises KubeconfigError if no entry has it."""
    if name not in entries:
        raise kubeconfig.error(section, f"no entry is named {name!r}{asked_by}")
    return entries[name]


def _server(file: KubeconfigFile, at: str, server: str) -> str:
    try:
        parts = urlsplit(server)
        port = parts.port
        URL(server)
    except ValueError as error:
        raise file.error(at, f"{server!r} is not a URL ({error})") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise file.error(at, f"{server!r} is not an http or https URL" if server else "not set")
    return server.rstrip("/")


def _proxy(file: KubeconfigFile, at: str, proxy: str) -> str | None:
    if not proxy:
        return None
    if not is_usable_proxy(proxy):
        shown = without_password(proxy)
        raise file.error(at, f"{shown!r} is not the URL of an HTTP proxy; others are not supported")
    return proxy


def _trust(file: KubeconfigFile, at: str, cluster: KubeconfigCluster) -> TlsTrust:
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


def _credentials(
    entry: KubeconfigEntry[KubeconfigUser], cluster: KubeconfigEntry[KubeconfigCluster], now: Callable[[], datetime]
) -> CredentialSource:
    file, at, user = entry
    if user.auth_provider is not None:
        raise file.error(f"{at}.auth-provider", "not supported; use an exec plugin")
    if user.impersonated_user:
        raise file.error(f"{at}.as", "impersonation is not supported")
    source = _bearer(entry, cluster, now)
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


def _bearer(
    entry: KubeconfigEntry[KubeconfigUser], cluster: KubeconfigEntry[KubeconfigCluster], now: Callable[[], datetime]
) -> CredentialSource:
    """Returns the token, password or plugin. A token file has precedence over a token, and both over anything else."""
    file, at, user = entry
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


def _exec_command(
    file: KubeconfigFile, at: str, plugin: Exec, cluster: KubeconfigEntry[KubeconfigCluster]
) -> ExecCommand:
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
        cluster=_cluster_information(cluster.value, cluster.file) if plugin.provide_cluster_info else None,
    )


def _cluster_information(cluster: KubeconfigCluster, file: KubeconfigFile) -> dict[str, object]:
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


def _exec_extension(cluster: KubeconfigCluster) -> object:
    for extension in cluster.extensions or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            return extension.get("extension")
    return None
