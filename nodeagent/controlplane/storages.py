"""Which storage a server has: memory, SQLite in its data directory, or etcd below a prefix, laid out as kube-apiserver does."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.controlplane.documents import Document
from nodeagent.controlplane.machinery.resources import Catalog, Resource
from nodeagent.controlplane.machinery.schema.decoding import normalise
from nodeagent.controlplane.storage.log import Log
from nodeagent.controlplane.storage.port import Storage

STORE_FILE: Final = "store.db"
"""Of a SQLite store, in the data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """How a cluster of etcd is reached. `servers` are (host, port) of its members; without `secure`, in plain text."""

    servers: tuple[tuple[str, int], ...]
    secure: bool = False
    cafile: Path | None = None
    """None: the machine's authorities."""
    certfile: Path | None = None
    keyfile: Path | None = None
    prefix: str = "/registry"

    def context(self) -> ssl.SSLContext | None:
        """None without TLS. Raises OSError, also where a file is not what it should be (ssl.SSLError)."""
        if not self.secure:
            return None
        context = ssl.create_default_context(cafile=str(self.cafile) if self.cafile else None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        if self.certfile is not None:
            context.load_cert_chain(self.certfile, self.keyfile)
        return context


def local_storage(directory: Path | None, limit_bytes: int | None = None) -> Storage:
    """SQLite in a directory, or in memory."""
    return Log(":memory:" if directory is None else str(directory / STORE_FILE), limit_bytes=limit_bytes)


def etcd_storage(settings: EtcdSettings, catalog: Catalog, clock: Callable[[], float]) -> Storage:
    """To be opened in the event loop it was made in. Raises OSError."""
    # Whoever needs no etcd does not load what speaks to it.
    from nodeagent.controlplane.storage.etcd.client import Client  # noqa: PLC0415
    from nodeagent.controlplane.storage.etcd.layout import Layout, Place  # noqa: PLC0415
    from nodeagent.controlplane.storage.etcd.rpc import Endpoint  # noqa: PLC0415
    from nodeagent.controlplane.storage.etcd.storage import EtcdStorage  # noqa: PLC0415

    places = {
        row.stored_in: Place(row.place or row.plural, row.kind, row.group_version, row.namespaced, _canonical(row))
        for row in catalog.rows
        if not row.converts
    }
    client = Client([Endpoint(*server) for server in settings.servers], settings.context())
    return EtcdStorage(client, Layout(settings.prefix, places), clock=clock)


def _canonical(row: Resource) -> Callable[[Document], Document]:
    """What others stored may lack what is filled in here before it is stored."""

    def canonical(document: Document) -> Document:
        row.default(document)
        return normalise(row.struct, document)

    return canonical
