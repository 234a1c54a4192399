"""Reads kubeconfig files, and merges several as kubectl merges those in ``$KUBECONFIG``.

Format: k8s.io/client-go tools/clientcmd/api/v1 types.go; merging: tools/clientcmd/loader.go.
"""

import os
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field

from nodeagent.model.text import printable
from nodeagent.proxy.source.client.api_errors import KubeconfigError
from nodeagent.runtime.bounded_file import read_whole
from nodeagent.wire.yaml.yaml_documents import YamlFault, documents

T = TypeVar("T", "KubeconfigCluster", "KubeconfigUser", "KubeconfigContext")


class KubeconfigCluster(Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""
    extensions: list[dict[str, object]] | None = None


class ExecVariable(Struct):
    name: str
    value: str = ""


class Exec(Struct, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[ExecVariable] | None = None
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class KubeconfigUser(Struct, rename="kebab"):
    token: str = ""
    token_file: str = field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: Exec | None = None
    auth_provider: object = None
    impersonated_user: str = field(default="", name="as")


class KubeconfigContext(Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(Struct):
    name: str
    cluster: KubeconfigCluster


class _NamedUser(Struct):
    name: str
    user: KubeconfigUser


class _NamedContext(Struct):
    name: str
    context: KubeconfigContext


class _Document(Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


class KubeconfigEntry(NamedTuple, Generic[T]):
    """An entry of a section. at: the field of `file` that `value` was read from."""

    file: "KubeconfigFile"
    at: str
    value: T


class Kubeconfig:
    """The content of one file, or of several: of entries with the same name, and of current contexts, the first one counts. Of several
    files some may not exist. Raises KubeconfigError, one line naming file and field."""

    def __init__(self, paths: Sequence[Path]) -> None:
        existing = [path for path in paths if path.exists()] if len(paths) > 1 else []
        files = [KubeconfigFile(path) for path in existing or paths[:1]]
        read = [(file, file.read()) for file in files]
        self._text = os.pathsep.join(str(file.path) for file in files)
        file, document = next((one for one in read if one[1].current_context), read[0])
        self.current_context, self.current_context_from = document.current_context, file.path
        self.clusters: dict[str, KubeconfigEntry[KubeconfigCluster]] = {}
        self.users: dict[str, KubeconfigEntry[KubeconfigUser]] = {}
        self.contexts: dict[str, KubeconfigEntry[KubeconfigContext]] = {}
        for file, document in read:
            for number, cluster in enumerate(document.clusters or ()):
                entry = KubeconfigEntry(file, f"clusters[{number}].cluster", cluster.cluster)
                self.clusters.setdefault(cluster.name, entry)
            for number, user in enumerate(document.users or ()):
                self.users.setdefault(user.name, KubeconfigEntry(file, f"users[{number}].user", user.user))
            for number, context in enumerate(document.contexts or ()):
                entry_of_context = KubeconfigEntry(file, f"contexts[{number}].context", context.context)
                self.contexts.setdefault(context.name, entry_of_context)

    def error(self, where: str, what: str) -> KubeconfigError:
        return _error(self._text, where, what)


class KubeconfigFile:
    """A kubeconfig file: makes errors that name it, and resolves paths relative to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def directory(self) -> Path:
        return self.path.absolute().parent

    def error(self, where: str, what: str) -> KubeconfigError:
        return _error(self.path, where, what)

    def read(self) -> _Document:
        """Returns the content as kubectl reads it: of a repeated key the last one counts, null values are absent."""
        try:
            text = read_whole(self.path).decode("utf-8-sig")
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


def _error(place: Path | str, where: str, what: str) -> KubeconfigError:
    return KubeconfigError(
        printable(f"kubeconfig {place}: {where}: {what}" if where else f"kubeconfig {place}: {what}")
    )


def _split(message: str) -> tuple[str, str]:
    """Returns (field, fault) from msgspec's ``Expected `str`, got `int` - at `$.users[0].user.token```."""
    fault, _, place = message.partition(" - at `$")
    fault = re.sub(r"^E", "e", fault.replace("`", ""))
    return place.rstrip("`").lstrip("."), fault
