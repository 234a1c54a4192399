"""Watches when what the agent and the API server prove themselves with expires, and announces it a week before."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from nodeagent.model.problem import Problem
from nodeagent.proxy.source.client.api_errors import CredentialsError
from nodeagent.proxy.source.client.credentials import Credential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import ShownCertificates
from nodeagent.runtime.validity import Validity, of_certificate, of_certificates, of_token

LOOK_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Expiring(NamedTuple):
    """A credential that expires.
    what: of few kinds. renewed_when_it_ends: the agent itself then gets another one, so only the end is a problem. cure: for
    users."""

    what: str
    validity: Validity
    cure: str
    renewed_when_it_ends: bool = False

    def problem(self, now: datetime) -> Problem | None:
        """Returns the problem of what has expired or soon will; None if it is valid for longer."""
        ends = f"{self.validity.ends:%Y-%m-%dT%H:%M:%SZ}"
        if now >= self.validity.ends:
            return Problem(self.what, "CredentialExpired", f"it expired at {ends}; {self.cure}")
        if self.renewed_when_it_ends or not self.validity.is_ending(now):
            return None
        return Problem(self.what, "CredentialExpires", f"it expires at {ends}; {self.cure}")


def expiring(credential: Credential, authority: bytes | None, servers: Mapping[str, bytes]) -> tuple[Expiring, ...]:
    """Returns all that expires. authority: PEM; None for the machine's. servers: the certificates that servers showed last, by name."""
    found = []
    if credential.expires is not None:
        validity, cure = (
            Validity(None, credential.expires),
            "the exec plugin of the kubeconfig gives no other: run it by hand",
        )
        found.append(Expiring("credential of the exec plugin", validity, cure, renewed_when_it_ends=True))
    else:
        if credential.client_certificate is not None:
            chain = of_certificates(credential.client_certificate[0])
            cure = (
                "renew it (kubeadm certs renew, or what issued it): a file that the kubeconfig names is read again by itself, a"
                " changed kubeconfig takes effect with systemctl reload nodeagent"
            )
            found += [Expiring("client certificate", one, cure) for one in _first_to_end(chain)]
        if (token := of_token(credential.authorization)) is not None:
            cure = (
                "renew it: a token file is read again by itself, a changed kubeconfig takes effect with systemctl reload nodeagent;"
                " in a pod the kubelet renews it, and its log says why it did not"
            )
            found.append(Expiring("token", token, cure))
    if authority is not None:
        # Of a bundle with old and new authorities the last one counts: only when that ends, no server is trusted.
        cure = "put the new authority beside the old one into certificate-authority of the kubeconfig, or into ca.crt in a pod"
        found += [Expiring("certificate authority", one, cure) for one in _last_to_end(of_certificates(authority))]
    for name, der in sorted(servers.items()):
        if (shown := of_certificate(der)) is not None:
            cure = "renew it where the API server runs, such as by kubeadm certs renew apiserver"
            found.append(Expiring(f"certificate of the API server {name}", shown, cure))
    return tuple(found)


def _first_to_end(chain: list[Validity]) -> list[Validity]:
    return sorted(chain, key=lambda one: one.ends)[:1]


def _last_to_end(bundle: list[Validity]) -> list[Validity]:
    return sorted(bundle, key=lambda one: one.ends)[-1:]


class CredentialWatch:
    """Looks once a minute, and when a server shows another certificate. shown: what servers showed last. now: the time of day.
    report: receives all problems. show: receives when each credential ends."""

    def __init__(
        self,
        access: ClusterAccess,
        shown: ShownCertificates,
        *,
        now: Callable[[], datetime],
        report: Callable[[Iterable[Problem]], None],
        show: Callable[[Mapping[str, datetime]], None],
    ) -> None:
        self._access = access
        self._shown = shown
        self._now = now
        self._report = report
        self._show = show
        self._found: tuple[Expiring, ...] = ()

    async def run(self) -> None:
        """Checks the credentials until cancelled."""
        while True:
            self._shown.changed.clear()
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._shown.changed.wait()

    async def look(self) -> None:
        """Looks once and reports. What cannot be read stays as it was: the next request says why."""
        try:
            credential, authority = await self._access.credentials.current(), await asyncio.to_thread(self._authority)
        except (CredentialsError, OSError) as error:
            logger.debug("credentials were not looked at: %s", error)
        else:
            self._found = expiring(credential, authority, self._shown.by_name)
            self._show({one.what: one.validity.ends for one in self._found})
        now = self._now()
        self._report(problem for one in self._found if (problem := one.problem(now)) is not None)

    def _authority(self) -> bytes | None:
        authority = self._access.trust.authority
        return authority.read_bytes() if isinstance(authority, Path) else authority
