"""Renews this server's certificate while it runs, and says a week before when another one that it needs expires."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nodeagent.apiserver.api import pki
from nodeagent.runtime.certificates import CertificateFailed
from nodeagent.runtime.figures.instruments import Instrument, gauge
from nodeagent.runtime.validity import Validity, of_certificates

LOOK_SECONDS = 3600.0
_SAY_EVERY = timedelta(days=1)
_SERVER, _AUTHORITY = "server", "certificate authority"
_CURES = {
    _SERVER: "openssl could not renew it: the log says why",
    _AUTHORITY: "stop all servers, remove the directory pki below --data-dir, start them, and give clients the new ca.crt and kubeconfigs",
    "etcd client": "replace --etcd-certfile and --etcd-keyfile: they are read again by themselves",
    "etcd authority": "put the new authority beside the old one into --etcd-cafile: it is read again by itself",
}

logger = logging.getLogger(__name__)


class CertificateWatch:
    """Looks once an hour. credentials: this server's. context: shows its certificate to clients. etcd: the etcd client's files, what →
    path. renew: renews the certificates that expire within 30 days; blocking. now: seconds since 1970."""

    def __init__(
        self,
        credentials: pki.Credentials,
        context: ssl.SSLContext,
        etcd: Mapping[str, Path],
        *,
        renew: Callable[[], object],
        now: Callable[[], float],
    ) -> None:
        self._server = credentials.directory / "server.crt"
        self._key = credentials.directory / "server.key"
        self._context = context
        self._files = {_SERVER: self._server, _AUTHORITY: credentials.authority, **etcd}
        self._renew = renew
        self._now = now
        self._said: dict[str, datetime] = {}
        self._ends: dict[str, Validity] = {}

    async def run(self) -> None:
        """Checks the certificates once an hour, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Looks once: renews the server's certificate if it is due, and logs what expires."""
        now = datetime.fromtimestamp(self._now(), UTC)
        self._ends = await asyncio.to_thread(self._read)
        if (server := self._ends.get(_SERVER)) is None or server.ends - now < pki.RENEW_BEFORE:
            await self._renew_server()
        for what, validity in self._ends.items():
            if validity.is_ending(now) and now - self._said.get(what, now - _SAY_EVERY) >= _SAY_EVERY:
                self._said[what] = now
                said = "expired" if now >= validity.ends else "expires"
                logger.warning(
                    "certificate %s: %s at %s; %s", what, said, f"{validity.ends:%Y-%m-%dT%H:%M:%SZ}", _CURES[what]
                )

    def instruments(self) -> Iterator[Instrument]:
        """Yields the metric of them all."""
        yield gauge(
            "apiserver_certificate_expiration_timestamp_seconds",
            "When a certificate that this server needs expires",
            "certificate",
            values={(what,): validity.ends.timestamp() for what, validity in self._ends.items()},
        )

    async def _renew_server(self) -> None:
        try:
            await asyncio.to_thread(self._renew)
            self._context.load_cert_chain(self._server, self._key)
            self._ends = await asyncio.to_thread(self._read)
        except (CertificateFailed, OSError) as error:
            logger.warning("certificate %s was not renewed error=%s", _SERVER, error)
        else:
            logger.info("certificate %s was renewed: new connections get it", _SERVER)

    def _read(self) -> dict[str, Validity]:
        """Returns the end of each file: of a chain the first one, of a bundle of authorities the last one."""
        found = {}
        for what, path in self._files.items():
            try:
                read = sorted(of_certificates(path.read_bytes()), key=lambda one: one.ends)
            except OSError as error:
                logger.debug("certificate %s cannot be read: %s", what, error)
                continue
            if read:
                found[what] = read[-1 if "authority" in what else 0]
        return found
