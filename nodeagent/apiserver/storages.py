"""Builds a server's storage: memory, SQLite in its data directory, or etcd with kube-apiserver's layout."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.apiserver.addresses.port_bitmap import RANGE_ALLOCATIONS
from nodeagent.apiserver.live_servers import MASTER_LEASES
from nodeagent.apiserver.storage.disk_reserve import DiskReserve
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.port import Storage
from nodeagent.kinds.description.decoding import normalise
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Catalog, Resource

STORE_FILE: Final = "store.db"
"""The name of a SQLite store in the data directory."""
_MEMORY_FILE: Final = "etcd-last-seen.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """How to reach an etcd cluster. `servers`: (host, port) of its members. Without `secure`, connections are not encrypted."""

    servers: tuple[tuple[str, int], ...]
    secure: bool = False
    cafile: Path | None = None
    """None: the authorities that the machine trusts."""
    certfile: Path | None = None
    keyfile: Path | None = None
    prefix: str = "/registry"

    def context(self) -> ssl.SSLContext | None:
        """Returns the TLS context, or None without TLS. Raises OSError, also for an invalid file (ssl.SSLError)."""
        if not self.secure:
            return None
        # Servers without etcd do not load the etcd client.
        from nodeagent.apiserver.storage.etcd.tls_files import RenewedContext  # noqa: PLC0415

        return RenewedContext.of(self.cafile, self.certfile, self.keyfile)


def local_storage(directory: Path | None, limit_bytes: int | None = None) -> Storage:
    """Returns a SQLite storage in the directory, or in memory if `directory` is None."""
    if directory is None:
        return Log(":memory:", limit_bytes=limit_bytes)
    path = str(directory / STORE_FILE)
    return Log(path, limit_bytes=limit_bytes, reserve=DiskReserve(path + "-reserve"))


def etcd_storage(
    settings: EtcdSettings,
    catalog: Catalog,
    clock: Callable[[], float],
    on_call: Callable[[str, str, float, bool], None] | None = None,
    memory: Path | None = None,
) -> Storage:
    """Returns a storage that must be opened in the same event loop. `memory`: the directory for what it last saw of etcd.
    `on_call`: as for its Client. Raises OSError.
    """
    # Servers without etcd do not load the etcd client.
    from nodeagent.apiserver.storage.etcd.cluster_client import Client  # noqa: PLC0415
    from nodeagent.apiserver.storage.etcd.last_seen import LastSeenFile  # noqa: PLC0415
    from nodeagent.apiserver.storage.etcd.layout import Layout, StoredCollection  # noqa: PLC0415
    from nodeagent.apiserver.storage.etcd.rpc import Endpoint  # noqa: PLC0415
    from nodeagent.apiserver.storage.etcd.storage import EtcdStorage  # noqa: PLC0415

    places = {
        row.stored_in: StoredCollection(
            row.place or row.plural, row.kind, row.group_version, row.namespaced, _canonical(row)
        )
        for row in catalog.rows
        if not row.converts
    }
    places[RANGE_ALLOCATIONS] = StoredCollection(RANGE_ALLOCATIONS, "RangeAllocation", "v1", False, None)
    places[MASTER_LEASES] = StoredCollection(MASTER_LEASES, "Endpoints", "v1", False, None)
    client = Client([Endpoint(*server) for server in settings.servers], settings.context(), on_call)
    remembers = LastSeenFile(memory / _MEMORY_FILE) if memory is not None else None
    return EtcdStorage(client, Layout(settings.prefix, places), clock=clock, memory=remembers)


def _canonical(row: Resource) -> Callable[[Document], Document]:
    """Returns a function that adds the defaults which other programs may not have stored."""

    def canonical(document: Document) -> Document:
        row.default(document)
        return normalise(row.struct, document)

    return canonical
