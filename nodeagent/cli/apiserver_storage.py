"""The storage of `nodeagent apiserver`: its options, and copies from one storage to another."""

import asyncio
import sqlite3
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import click

from nodeagent.apiserver.migration import MigrationResult, move
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.port import Storage
from nodeagent.apiserver.storage.records import StorageFailed, StorageFull
from nodeagent.apiserver.storage.store import Store
from nodeagent.apiserver.storages import STORE_FILE, EtcdSettings, etcd_storage
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.kinds.catalog import all_kinds
from nodeagent.model.text import printable

ETCD_PORT = 2379
_MOST_LISTED = 10
_Command = TypeVar("_Command", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class StorageChoice:
    """The selected storage. etcd: None for SQLite in `data_dir`, or for memory without a directory."""

    data_dir: Path | None
    etcd: EtcdSettings | None = None
    in_memory: bool = False


def storage_options(command: _Command) -> _Command:
    """Adds the options that select the storage."""
    file = click.Path(path_type=Path, dir_okay=False)
    options = (
        click.option(
            "--storage",
            type=click.Choice(["sqlite", "memory", "etcd"]),
            help="Where objects are kept. Default: sqlite with --data-dir, else memory.",
        ),
        click.option("--etcd-servers", default="", help="URLs of etcd's members, separated by commas."),
        click.option("--etcd-cafile", type=file, help="Certificate authorities that verify etcd's certificates."),
        click.option("--etcd-certfile", type=file, help="Client certificate for etcd."),
        click.option("--etcd-keyfile", type=file, help="Key of the client certificate."),
        click.option("--etcd-prefix", default="/registry", show_default=True, help="Prefix of the keys."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_storage(
    data_dir: Path | None,
    storage: str | None,
    servers: str,
    files: tuple[Path | None, Path | None, Path | None],
    prefix: str,
) -> StorageChoice:
    """Returns the selected storage. files: authorities, certificate, key. Raises Failure if options contradict each other."""
    cafile, certfile, keyfile = files
    if storage == "sqlite" and data_dir is None:
        raise Failure("--storage sqlite needs --data-dir", UNUSABLE)
    if storage != "etcd":
        if servers:
            raise Failure("--etcd-servers is for --storage etcd", UNUSABLE)
        settings = EtcdSettings(servers=(), cafile=cafile, certfile=certfile, keyfile=keyfile, prefix=prefix)
        # Only `migrate` uses these settings; it sets the servers itself.
        return StorageChoice(data_dir, settings if cafile or certfile else None, in_memory=storage == "memory")
    if not servers:
        raise Failure("--storage etcd needs --etcd-servers", UNUSABLE)
    return StorageChoice(data_dir, read_etcd(servers, cafile, certfile, keyfile, prefix))


def read_etcd(
    servers: str, cafile: Path | None, certfile: Path | None, keyfile: Path | None, prefix: str
) -> EtcdSettings:
    """Returns the settings of an etcd cluster. Raises Failure if they cannot be used."""
    urls = [urlsplit(text.strip()) for text in servers.split(",") if text.strip()]
    schemes = {url.scheme for url in urls}
    try:
        found = tuple((url.hostname or "", url.port or ETCD_PORT) for url in urls)
    except ValueError as error:
        raise Failure(f"--etcd-servers {servers}: {error}", UNUSABLE) from None
    if not found or schemes - {"http", "https"} or len(schemes) != 1 or not all(host for host, _ in found):
        raise Failure(
            f"--etcd-servers {servers!r}: URLs such as https://192.0.2.1:{ETCD_PORT}, all of one kind", UNUSABLE
        )
    if (certfile is None) != (keyfile is None):
        raise Failure("--etcd-certfile and --etcd-keyfile belong together", UNUSABLE)
    secure = schemes == {"https"}
    if not secure and (cafile or certfile):
        raise Failure("etcd's certificates are for https://", UNUSABLE)
    if not prefix.strip("/"):
        raise Failure("--etcd-prefix must not be empty; /registry is kube-apiserver's", UNUSABLE)
    if not prefix.isprintable() or {".", ".."} & set(prefix.split("/")):
        raise Failure(f"--etcd-prefix {prefix!r}: names such as /registry, without . and ..", UNUSABLE)
    settings = EtcdSettings(
        servers=found, secure=secure, cafile=cafile, certfile=certfile, keyfile=keyfile, prefix=prefix
    )
    try:
        settings.context()
    except (ssl.SSLError, OSError) as error:
        named = ", ".join(str(path) for path in (cafile, certfile, keyfile) if path)
        raise Failure(f"etcd's certificates cannot be used ({named}): {error}", UNUSABLE) from None
    return settings


def snapshot_etcd(settings: EtcdSettings, output: Path) -> None:
    """Copies the objects in etcd to a SQLite file. Raises Failure."""

    async def take() -> None:
        async with _store(_etcd(settings)) as store:
            await store.snapshot(str(output))

    _run(take(), f"{output}: snapshot failed")


def restore_etcd(settings: EtcdSettings, snapshot: Path) -> None:
    """Writes the objects of a snapshot to etcd. Raises Failure if etcd has a different version of one of them."""
    _report(_run(_move(_sqlite(snapshot), _etcd(settings)), f"{snapshot} cannot be restored"))


@click.command(
    "migrate",
    epilog=examples(
        "nodeagent apiserver migrate --from sqlite:DIR --to etcd:http://127.0.0.1:2379",
    ),
)
@click.option("--from", "source", required=True, help="sqlite:DIR, the data directory of a server that is not running.")
@click.option("--to", "target", required=True, help="etcd:URL,URL,…")
@click.pass_obj
def migrate_command(choice: StorageChoice, *, source: str, target: str) -> None:
    """Copy all objects to etcd, and compare them there; nothing is overwritten. After an interruption, run it again."""
    kind, _, where = source.partition(":")
    store = Path(where) / STORE_FILE
    if kind != "sqlite" or not store.is_file():
        raise Failure(f"--from {source}: sqlite:DIR, and DIR holds a {STORE_FILE}", UNUSABLE)
    kind, _, where = target.partition(":")
    if kind != "etcd":
        raise Failure(f"--to {target}: only etcd:URL,URL,… is possible", UNUSABLE)
    given = choice.etcd or EtcdSettings(servers=())
    settings = read_etcd(where, given.cafile, given.certfile, given.keyfile, given.prefix)
    _report(_run(_move(_sqlite(store), _etcd(settings)), "migration failed"))


def _report(moved: MigrationResult) -> None:
    for what in moved.different[:_MOST_LISTED]:
        click.echo(f"different there: {printable(what)}")
    click.echo(f"{moved.written} objects written, {moved.same} were there, {len(moved.different)} are different there")
    if moved.different:
        raise Failure("objects in etcd are not those of the source; nothing was overwritten", FAILED)


async def _move(source: Callable[[], Storage], target: Callable[[], Storage]) -> MigrationResult:
    async with _store(source) as one, _store(target) as other:
        return await move(one, other)


def _store(make: Callable[[], Storage]) -> Store:
    return Store(make(), clock=time.time)


def _etcd(settings: EtcdSettings) -> Callable[[], Storage]:
    return lambda: etcd_storage(settings, all_kinds(), time.time)


def _sqlite(path: Path) -> Callable[[], Storage]:
    return lambda: Log(str(path))


_Result = TypeVar("_Result")


def _run(work: Coroutine[None, None, _Result], what: str) -> _Result:
    try:
        return asyncio.run(work)
    except (StorageFailed, StorageFull, OSError, sqlite3.Error) as error:
        raise Failure(f"{what}: {error}", FAILED) from error
