"""TLS to etcd, with certificate files that may be replaced while the server runs."""

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


class RenewedContext(ssl.SSLContext):
    """A client context that checks before each connection whether its files changed. Create it with `of`."""

    _cafile: Path | None = None
    _certfile: Path | None = None
    _keyfile: Path | None = None
    _seen: Sequence[object] = ()

    @classmethod
    def of(cls, cafile: Path | None, certfile: Path | None, keyfile: Path | None) -> "RenewedContext":
        """Returns a context. Without `cafile` it trusts the machine's authorities. Raises OSError, also for an invalid file."""
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        context._cafile, context._certfile, context._keyfile = cafile, certfile, keyfile
        context._seen = context._stamps()
        context._fill(context)
        return context

    @property
    def certfile(self) -> Path | None:
        """The client certificate."""
        return self._certfile

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Reloads changed files. Called by asyncio for each connection."""
        self._reload_if_changed()
        return super().wrap_bio(*arguments, **named)

    def _reload_if_changed(self) -> None:
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            # Loads into a new context first: a mismatched pair would otherwise destroy the one in use.
            self._fill(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            self._fill(self)
        except OSError as error:
            logger.warning("etcd's certificates were not reloaded file=%s error=%s", self._certfile, error)
        else:
            logger.info("etcd's certificates were renewed file=%s", self._certfile)

    def _fill(self, context: ssl.SSLContext) -> None:
        if self._cafile is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(self._cafile)
        if self._certfile is not None:
            context.load_cert_chain(self._certfile, self._keyfile)

    def _stamps(self) -> Sequence[object]:
        stamps: list[object] = []
        for path in (self._cafile, self._certfile, self._keyfile):
            try:
                found = path.stat() if path is not None else None
            except OSError as error:
                stamps.append(error.errno)
                continue
            stamps.append(found and (found.st_ino, found.st_mtime_ns, found.st_size))
        return stamps
