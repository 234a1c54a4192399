"""Exec credential plugins: a program prints an ExecCredential (client.authentication.k8s.io/v1 and v1beta1).

Reference: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from nodeagent.proxy.source.client.api_errors import CredentialsError, first_line
from nodeagent.proxy.source.client.credentials import Credential
from nodeagent.wire.unreadable import UNREADABLE

RUN_LIMIT_SECONDS = 60.0
OUTPUT_LIMIT_BYTES = 1 << 20
RENEW_BEFORE_EXPIRY = timedelta(seconds=10)


class ExecCommand(Struct, frozen=True):
    """The command of a plugin. environment: added to the agent's own. cluster: spec.cluster of the request, None if not wanted."""

    api_version: str
    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    install_hint: str | None = None
    cluster: Mapping[str, object] | None = None


class _CredentialStatus(Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(Struct, rename="camel"):
    api_version: str
    kind: str
    status: _CredentialStatus | None = None


class ExecPlugin:
    """Runs the plugin if there is no credential yet, the last one expires, or the server refused it.

    now: the wall clock, timezone-aware.
    """

    def __init__(
        self, command: ExecCommand, *, now: Callable[[], datetime], run_limit_seconds: float = RUN_LIMIT_SECONDS
    ) -> None:
        self._command = command
        self._now = now
        self._run_limit_seconds = run_limit_seconds
        self._running = asyncio.Lock()
        self._credential: Credential | None = None
        self._expires: datetime | None = None

    async def current(self) -> Credential:
        async with self._running:
            expired = self._expires is not None and self._now() + RENEW_BEFORE_EXPIRY >= self._expires
            if self._credential is None or expired:
                status = self._status_in(await self._run())
                self._credential = self._credential_in(status)
                self._expires = status.expiration_timestamp
            return self._credential

    def refused(self) -> None:
        self._credential = None

    async def _run(self) -> bytes:
        command = self._command
        # Files, not pipes: a grandchild that keeps a pipe open would make us wait for its end.
        with _memory_file("nodeagent-stdout") as output, _memory_file("nodeagent-stderr") as complaints:
            try:
                process = await asyncio.create_subprocess_exec(
                    command.command,
                    *command.arguments,
                    cwd=command.directory,
                    env={**os.environ, **command.environment, "KUBERNETES_EXEC_INFO": self._request()},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=complaints,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:  # ValueError: a NUL, or a variable that cannot be one
                why = error.strerror if isinstance(error, OSError) else None
                hint = f"; {command.install_hint}" if command.install_hint else ""
                raise self._failure(f"{why or error}{hint}") from error
            try:
                async with asyncio.timeout(self._run_limit_seconds):
                    await process.wait()
            except TimeoutError as error:
                raise self._failure(f"gave no credential within {self._run_limit_seconds:g} s") from error
            finally:
                if process.returncode is None:
                    await _end(process)
            if process.returncode:
                said = first_line(_contents(complaints)) or "no message"
                raise self._failure(f"exit status {process.returncode}: {said}")
            if os.fstat(output).st_size > OUTPUT_LIMIT_BYTES:
                raise self._failure(f"its output is longer than {OUTPUT_LIMIT_BYTES} bytes")
            return _contents(output)

    def _request(self) -> str:
        spec: dict[str, object] = {"interactive": False}
        if self._command.cluster is not None:
            spec["cluster"] = self._command.cluster
        request = {"apiVersion": self._command.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(request).decode()

    def _status_in(self, output: bytes) -> _CredentialStatus:
        try:
            answer = msgspec.json.decode(output, type=_ExecCredential)
        except UNREADABLE as error:
            raise self._failure(f"its output is not an ExecCredential: {error}") from error
        if answer.kind != "ExecCredential" or answer.api_version != self._command.api_version:
            wanted = f"ExecCredential of {self._command.api_version}"
            raise self._failure(f"its output is {answer.kind} of {answer.api_version}, not {wanted}")
        if answer.status is None:
            raise self._failure("its output has no status")
        expires = answer.status.expiration_timestamp
        if expires is not None and expires.tzinfo is None:
            raise self._failure("status.expirationTimestamp has no time zone")
        return answer.status

    def _credential_in(self, status: _CredentialStatus) -> Credential:
        certificate, key = status.client_certificate_data, status.client_key_data
        if bool(certificate) != bool(key):
            raise self._failure("status has a client certificate without key, or a key without certificate")
        if not status.token and not certificate:
            raise self._failure("status has neither a token nor a client certificate")
        return Credential(
            f"Bearer {status.token}" if status.token else None,
            (certificate.encode(), key.encode()) if certificate and key else None,
            status.expiration_timestamp,
        )

    def _failure(self, why: str) -> CredentialsError:
        return CredentialsError(f"exec plugin {self._command.command}: {why}")


@contextmanager
def _memory_file(name: str) -> Iterator[int]:
    """Yields the descriptor of a file in memory that is closed afterwards."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _contents(descriptor: int) -> bytes:
    return os.pread(descriptor, OUTPUT_LIMIT_BYTES, 0)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kills the process with its children; its group may have ended already."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
