"""`nodeagent apiserver`: the embedded API server, and snapshots of its store."""

import asyncio
import asyncio.sslproto
import contextlib
import logging
import os
import re
import resource
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path

import click

from nodeagent.apiserver.addresses.host_networks import connected_networks
from nodeagent.apiserver.api import issued_kubeconfig
from nodeagent.apiserver.api.authorization import role_of
from nodeagent.apiserver.api.pki import GROUPS, add_user, write_private
from nodeagent.apiserver.api.token_file import TokenFile
from nodeagent.apiserver.api_server import ApiServer
from nodeagent.apiserver.server_settings import LIMIT_BYTES, ServerSettings, SettingsRefused
from nodeagent.apiserver.storage import sqlite_file
from nodeagent.apiserver.storage.records import StorageFailed
from nodeagent.apiserver.storage.store import Window
from nodeagent.apiserver.storages import STORE_FILE
from nodeagent.cli import apiserver_storage
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, UNUSABLE, Failure
from nodeagent.daemon.arenas import use_one_arena
from nodeagent.daemon.collector import collect_rarely
from nodeagent.daemon.event_loop import DaemonLoop, NoThreads
from nodeagent.model.addresses import LAST_PORT
from nodeagent.model.text import printable
from nodeagent.proxy.source.mirror import mirror_endpoints
from nodeagent.runtime.certificates import CertificateFailed
from nodeagent.runtime.logs.setup import set_up_logging
from nodeagent.runtime.serving.admission import ConnectionLimits
from nodeagent.runtime.systemd import SystemdNotifier
from nodeagent.runtime.thread_turns import take_short_turns

_TLS_BUFFER_BYTES = 8 * 1024
_LONGEST_HISTORY_SECONDS = 24 * 3600
_USER = re.compile(r"[A-Za-z0-9._:@-]{1,253}")
_OPEN_FILES = 16_384
_OTHER_FILES = 128
_LARGEST_STORE_MIB = 1024 * 1024
_MOST_DIGITS = 6


@click.group(
    "apiserver",
    invoke_without_command=True,
    epilog=examples(
        "nodeagent apiserver --kubeconfig-out admin.kubeconfig",
        "nodeagent apiserver --data-dir DIR --listen 192.0.2.11:6443",
        "nodeagent apiserver --data-dir DIR snapshot store.db",
    ),
)
@click.option(
    "--listen", default="127.0.0.1:6443", show_default=True, help="Address and port; port 0 picks a free one."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for keys, and for objects unless --storage selects another place; without it, in memory.",
)
@apiserver_storage.storage_options
@click.option(
    "--kubeconfig-out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an administrator's kubeconfig (mode 0600).",
)
@click.option(
    "--advertise-address",
    default="",
    help="The address at which clients reach this server; default: the listen address.",
)
@click.option(
    "--service-cluster-ip-range",
    default="10.96.0.0/12",
    show_default=True,
    help="One CIDR, or two of different families.",
)
@click.option(
    "--service-node-port-range", default="30000-32767", show_default=True, help="Node ports that may be allocated."
)
@click.option(
    "--load-balancer-cidr", default="", help="Give LoadBalancer services addresses from here; off by default."
)
@click.option("--pod-cidr", multiple=True, help="A pod range the service range may not overlap; repeatable.")
@click.option(
    "--enable-garbage-collector",
    is_flag=True,
    help="Honour deletion propagation policies: a kube-controller-manager collects garbage here.",
)
@click.option("--insecure", is_flag=True, help="Plain HTTP, everybody is administrator; loopback only.")
@click.option(
    "--history",
    default=300,
    show_default=True,
    type=click.IntRange(1, _LONGEST_HISTORY_SECONDS),
    help="Seconds of history kept for watches.",
)
@click.option(
    "--store-limit",
    default=LIMIT_BYTES // 2**20,
    show_default=True,
    type=click.IntRange(1, _LARGEST_STORE_MIB),
    help="Largest size of the store in MiB; writes beyond it fail with 507. etcd has a limit of its own.",
)
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
)
@click.option(
    "--log-format",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json"]),
    help="Log lines as text, or as one JSON object each.",
)
@click.pass_context
def apiserver_command(
    ctx: click.Context,
    *,
    listen: str,
    data_dir: Path | None,
    storage: str | None,
    etcd_servers: str,
    etcd_cafile: Path | None,
    etcd_certfile: Path | None,
    etcd_keyfile: Path | None,
    etcd_prefix: str,
    kubeconfig_out: Path | None,
    advertise_address: str,
    service_cluster_ip_range: str,
    service_node_port_range: str,
    load_balancer_cidr: str,
    pod_cidr: tuple[str, ...],
    enable_garbage_collector: bool,
    insecure: bool,
    history: int,
    store_limit: int,
    log_level: str,
    log_format: str,
) -> None:
    """A small Kubernetes API for service networking, until SIGTERM or SIGINT.

    Exit codes: 0, 1 failed, 2 unusable settings, 3 not permitted.
    """
    etcd_files = (etcd_cafile, etcd_certfile, etcd_keyfile)
    choice = ctx.obj = apiserver_storage.read_storage(data_dir, storage, etcd_servers, etcd_files, etcd_prefix)
    if ctx.invoked_subcommand is not None:
        return
    set_up_logging(
        getattr(logging, log_level.upper()), as_json=log_format == "json", journald="JOURNAL_STREAM" in os.environ
    )
    # The store's thread takes the interpreter lock back after every statement; the default of 5 ms is its whole budget.
    take_short_turns()
    # asyncio zeroes a read buffer of 256 KiB for every TLS connection: a thousand idle watches would hold 250 MB. Only what clients
    # send is read through it, and the longest body is 3 MiB.
    asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
    _allow_descriptors()
    host, port = _host_and_port(listen)
    if kubeconfig_out is not None and not kubeconfig_out.parent.is_dir():
        raise Failure(f"--kubeconfig-out {kubeconfig_out}: there is no directory {kubeconfig_out.parent}", UNUSABLE)
    taken = [("pod range", text) for text in pod_cidr]
    taken += [("network of this machine", text) for text in connected_networks()]
    settings = ServerSettings(
        host=host,
        port=port,
        data_dir=data_dir,
        in_memory=choice.in_memory,
        etcd=choice.etcd if choice.etcd and choice.etcd.servers else None,
        kubeconfig_out=kubeconfig_out,
        advertise_address=advertise_address,
        service_ranges=service_cluster_ip_range,
        node_ports=service_node_port_range,
        load_balancer_cidr=load_balancer_cidr,
        taken=tuple(taken),
        insecure=insecure,
        window=Window(seconds=history),
        limit_bytes=store_limit * 2**20,
        has_collector=enable_garbage_collector,
        connections=_connection_limits(),
    )
    use_one_arena()
    collect_rarely()
    try:
        with asyncio.Runner(loop_factory=DaemonLoop) as runner:
            runner.run(_serve(settings))
    except SettingsRefused as error:
        raise Failure(str(error), UNUSABLE) from error
    except PermissionError as error:
        raise Failure(_refused(error, listen), CANNOT_PROGRAM) from error
    except OSError as error:
        where = f"--listen {listen}" if error.filename is None else str(error.filename)
        raise Failure(f"{where}: {error.strerror or error}", FAILED) from error
    except (CertificateFailed, NoThreads, StorageFailed) as error:
        raise Failure(str(error), FAILED) from error


def _refused(error: PermissionError, listen: str) -> str:
    if error.filename is None:
        return f"--listen {listen}: Permission denied: ports below 1024 need root or CAP_NET_BIND_SERVICE"
    return f"{error.filename}: Permission denied: run it as the owner, or name another --data-dir"


def _allow_descriptors() -> None:
    """Raises the limit of open files to what the connections need, as far as allowed; the default is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _connection_limits() -> ConnectionLimits:
    """Returns limits of connections that fit the limit of open files, minus those of the store."""
    most = ConnectionLimits()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    total = most.total if soft == resource.RLIM_INFINITY else max(min(most.total, soft - _OTHER_FILES), 1)
    return replace(
        most,
        total=total,
        per_address=min(most.per_address, total),
        per_user=min(most.per_user, max(total // 4, 1)),
        strangers=min(most.strangers, max(total // 2, 1)),
        strangers_per_address=min(most.strangers_per_address, max(total // 4, 1)),
    )


def _host_and_port(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= _MOST_DIGITS
    if not (colon and is_number) or int(port) > LAST_PORT:
        raise Failure(f"--listen {listen!r} is not an address and a port, such as 127.0.0.1:6443", UNUSABLE)
    return host.strip("[]"), int(port)


async def _serve(settings: ServerSettings) -> None:
    server = ApiServer(settings, mirror=mirror_endpoints, notifier=SystemdNotifier(os.environ))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    await server.run()


@apiserver_command.command(
    "kubeconfig",
    epilog=examples(
        "nodeagent apiserver --data-dir DIR kubeconfig --role reader --name prometheus",
        "nodeagent apiserver --data-dir DIR kubeconfig --role agent --name node-a --output agent.kubeconfig",
    ),
)
@click.option(
    "--role",
    type=click.Choice(sorted(GROUPS)),
    required=True,
    help="Rights: everything, read everything but Secrets, or what a node's agent needs.",
)
@click.option("--name", default="", help="The user; a new one is added. Default: the role.")
@click.option("--server", default="", help="URL of the server; default: from --listen and --advertise-address.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file (mode 0600) instead of to standard output.",
)
@click.pass_context
def kubeconfig_command(ctx: click.Context, *, role: str, name: str, server: str, output: Path | None) -> None:
    """Print or write a kubeconfig for a user of the server of --data-dir; the server may be running."""
    directory = _store_of(ctx.obj.data_dir).parent / "pki"
    name = name or role
    if not _USER.fullmatch(name):
        raise Failure(f"--name {name!r}: letters, digits, '-', '.', '_', ':' and '@' only", UNUSABLE)
    try:
        authority = (directory / "ca.crt").read_bytes()
        known = TokenFile(directory / "tokens.csv").user_named(name)
        if known is not None and known[1] != role_of([GROUPS[role]]):
            raise Failure(f"user {name} has another role: choose another --name", UNUSABLE)
        token = known[0] if known is not None else add_user(directory / "tokens.csv", name, GROUPS[role])
        text = issued_kubeconfig.render(server or _url_of(ctx), authority=authority, token=token, name=name)
        if output is not None:
            write_private(output, text)
    except FileNotFoundError as error:
        raise Failure(f"{error.filename} does not exist: the server creates it at its first start", UNUSABLE) from error
    except OSError as error:
        raise Failure(str(error), FAILED) from error
    if output is None:
        click.echo(text, nl=False)


def _url_of(ctx: click.Context) -> str:
    assert ctx.parent is not None
    host, port = _host_and_port(ctx.parent.params["listen"])
    host = ctx.parent.params["advertise_address"] or host
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


@apiserver_command.command(
    "snapshot",
    epilog=examples(
        "nodeagent apiserver --data-dir DIR snapshot store.db",
    ),
)
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def snapshot_command(choice: apiserver_storage.StorageChoice, *, output: Path) -> None:
    """Copy the store of --data-dir, or of etcd, to OUTPUT, consistent at one revision; the server may be running."""
    if os.path.lexists(output):
        raise Failure(f"{output} exists", UNUSABLE)
    if choice.etcd is not None and choice.etcd.servers:
        apiserver_storage.snapshot_etcd(choice.etcd, output)
        return
    data_dir = choice.data_dir
    source = _store_of(data_dir)
    if not source.exists():
        raise Failure(f"there is no store in {data_dir}", UNUSABLE)
    try:
        with contextlib.closing(sqlite_file.connect(str(source))) as connection:
            sqlite_file.copy_to(connection, str(output))
    except (sqlite3.Error, OSError, StorageFailed) as error:
        raise Failure(f"snapshot failed: {error}", FAILED) from error


@apiserver_command.command(
    "restore",
    epilog=examples(
        "nodeagent apiserver --data-dir DIR restore store.db",
    ),
)
@click.argument("snapshot", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.pass_obj
def restore_command(choice: apiserver_storage.StorageChoice, *, snapshot: Path) -> None:
    """Make SNAPSHOT the store of --data-dir, which must not have one yet, or write its objects to etcd."""
    if choice.etcd is not None and choice.etcd.servers:
        apiserver_storage.restore_etcd(choice.etcd, snapshot)
        return
    target = _store_of(choice.data_dir)
    if os.path.lexists(target):
        raise Failure(f"{target} exists: move it away first", UNUSABLE)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with contextlib.closing(sqlite3.connect(f"{snapshot.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            sqlite_file.check(connection)
            sqlite_file.restore_to(connection, str(target))
    except (sqlite3.Error, OSError) as error:
        target.unlink(missing_ok=True)
        raise Failure(f"{snapshot} cannot be restored: {error}", FAILED) from error


@apiserver_command.command(
    "repair",
    epilog=examples(
        "nodeagent apiserver --data-dir DIR repair",
    ),
)
@click.pass_obj
def repair_command(choice: apiserver_storage.StorageChoice) -> None:
    """Remove damaged records from the store of --data-dir, and list them; the server must not be running."""
    path = _store_of(choice.data_dir)
    if not path.exists():
        raise Failure(f"there is no store in {choice.data_dir}", UNUSABLE)
    try:
        sqlite_file.examine_log(str(path))
        with contextlib.closing(sqlite_file.connect(str(path))) as connection:
            removed = sqlite_file.remove_damaged(connection)
            sqlite_file.read_revisions(connection)
    except (sqlite3.Error, OSError, StorageFailed) as error:
        raise Failure(f"{path} cannot be repaired: {error}", FAILED) from error
    for what in removed:
        click.echo(f"removed {printable(what)}")
    click.echo(f"{len(removed)} damaged records removed")


apiserver_command.add_command(apiserver_storage.migrate_command)


def _store_of(data_dir: Path | None) -> Path:
    if data_dir is None:
        raise Failure("--data-dir is needed", UNUSABLE)
    return data_dir / STORE_FILE
