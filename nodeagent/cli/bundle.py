"""`nodeagent bundle`: writes an archive for a bug report."""

import gzip
import io
import os
import platform
import re
import tarfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NoReturn

import click
import msgspec

from nodeagent import __version__
from nodeagent.cli.all_nodes.cluster_options import ClusterTarget, cluster_options
from nodeagent.cli.asking import access_options
from nodeagent.cli.bundled_commands import Programs, fork_check, start_commands
from nodeagent.cli.check import Begun, begin_check
from nodeagent.cli.diff import difference
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.explanations import document, explain_unhealthy
from nodeagent.cli.kernel_view import KernelView, Known, read_kernel
from nodeagent.cli.node_reading import ask_agent, look_at_node
from nodeagent.cli.node_view import Access, NodeView
from nodeagent.cli.recording import MEMBERS, RECORDING, Recording
from nodeagent.cli.replayed_objects import CONTEXT, OBJECTS
from nodeagent.cli.replayed_routes import ABOUT
from nodeagent.cli.second_reader import MOST_READ_TWICE
from nodeagent.diagnosis.trace.kernel_rules import table_names
from nodeagent.model.addresses import Family
from nodeagent.model.text import printable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import DataplaneError
from nodeagent.proxy.dataplane.interface_deviation import InterfaceFound
from nodeagent.proxy.dataplane.interface_reading import read_interface
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.observe.admin.admin_client import NoAgent
from nodeagent.proxy.observe.admin.admin_documents import Status
from nodeagent.wire.netlink.uapi.nf_tables import NFT_SET_MAP

_encode: Final = msgspec.json.Encoder(enc_hook=list).encode
"""Writes what is packed as a list of its values."""
_SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/ipv6/conf/all/disable_ipv6",
    "net/ipv4/conf/all/rp_filter",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_count",
)
_NFT = ("nft", "-n")
_NFT_FAMILIES = {Family.IPV4: "ip", Family.IPV6: "ip6"}
STDOUT = Path("-")
COMPRESSION = 1
"""Of gzip: the fastest."""
ALL_SECONDS, NODE_SECONDS = 600.0, 120.0
"""Time limits for the bundles of all nodes, and for one."""
_USER = re.compile(rb"(://)[^/@\s\"]+@")
_TOKEN = re.compile(rb"((?:Bearer|Basic) )[\w.~+/=-]{8,}")


@dataclass(frozen=True, slots=True)
class _Kernel:
    """Our tables and the service interface. unread: why they could not be read; empty if they were."""

    tables: Sequence[KernelView]
    interface: InterfaceFound | None
    unread: str = ""


@click.command(
    "bundle",
    epilog=examples(
        "nodeagent bundle report.tar.gz",
        "nodeagent bundle report.tar.gz --manifests DIR",
        "nodeagent bundle report.tar --all-nodes     a bundle of each node in one archive",
    ),
)
@click.argument("output", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@cluster_options(within=ALL_SECONDS, seconds=NODE_SECONDS)
@access_options
def bundle_command(output: Path, access: Access, cluster: ClusterTarget | None) -> None:
    """Write one archive for a bug report to OUTPUT (mode 0600), which must not exist yet; `-`: to standard output.

    It contains Services and EndpointSlices, the state that the agent computed from them, the tables, links and routes of this
    kernel, problems, passes, the output of `nodeagent check`, the log of the unit nodeagent, some sysctls and versions. It
    contains names and addresses, but no credentials, kubeconfigs, annotations and labels.

    Exit codes: 0, 1 failed or a node is missing, 2 wrong arguments.
    """
    if cluster is not None:
        _bundle_of_all(output, cluster)
    with Programs() as programs:
        start_commands(programs)
        begun = _begin_check()
        fork_check(programs, access.socket, begun)  # before all else is in memory, which a fork would copy
        view = look_at_node(access)
        kernel = _read_kernel(view, {} if begun is None else begun.tables)
        try:
            count = _write(output, view, kernel, access, programs)
        except OSError as error:
            raise Failure(f"{output}: {error.strerror or error}", FAILED) from error
        except Failure:  # the agent ended meanwhile
            if output != STDOUT:
                output.unlink(missing_ok=True)
            raise
    click.echo(f"{output}: {count} files, from {view.origin}", err=output == STDOUT)


def _write(output: Path, view: NodeView, kernel: _Kernel, access: Access, programs: Programs) -> int:
    """Writes the archive, and returns the number of its files. Raises OSError, Failure."""
    count = 0
    with (
        _open_output(output) as file,
        gzip.GzipFile("", "wb", COMPRESSION, file) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for name, unsafe in _files(view, kernel, access, programs):
            content, count = redacted(unsafe), count + 1
            member = tarfile.TarInfo(f"{MEMBERS}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(content))
    return count


def _open_output(output: Path) -> IO[bytes]:
    """Opens the archive for writing. Raises OSError, also if the file exists."""
    if output == STDOUT:
        return os.fdopen(os.dup(1), "wb")
    return os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _bundle_of_all(output: Path, cluster: ClusterTarget) -> NoReturn:
    from nodeagent.cli.all_nodes.cluster_bundle import bundle_cluster  # noqa: PLC0415 - loads a client of the API

    if output == STDOUT:
        raise Failure("the bundles of all nodes need a file as OUTPUT", UNUSABLE)
    count, missing = bundle_cluster(cluster, output, redacted)
    for node, why in sorted(missing.items()):
        click.echo(f"nodeagent: {printable(f'{node} is missing: {why}')}", err=True)
    click.echo(f"{output}: bundles of {count} of {count + len(missing)} nodes; nodeagent replay --node NAME {output}")
    click.get_current_context().exit(FAILED if missing or not count else 0)


def _files(view: NodeView, kernel: _Kernel, access: Access, programs: Programs) -> Iterator[tuple[str, bytes]]:
    """Yields the files of the archive, as (name, content). programs: run meanwhile."""
    big = _big_sets(kernel.tables)
    programs.start("ruleset", *_listings(kernel.tables, big))
    about = {
        "version": __version__,
        "kernel": " ".join(platform.uname()[i] for i in (0, 2, 4)),
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "origin": view.origin,
        "sysctls": {name.replace("/", "."): _sysctl(name) for name in _SYSCTLS},
        "not_listed": big,
    }
    yield ABOUT, _json(about)
    recording = Recording(
        families=view.families,
        node=view.node,
        states=tuple(view.states.values()),
        program=None if view.program is None else dict(view.program),
        names_at=tuple(view.names_at),
    )
    yield RECORDING, _encode(recording)
    bundled = [
        {"service": view.services[key], "slices": list(view.slices.get(key, ()))} for key in sorted(view.services)
    ]
    yield OBJECTS, _rows(bundled)
    yield CONTEXT, _json(view.context)
    yield "problems.json", _rows([{"problem": one, "since": view.since.get(one)} for one in view.problems])
    as_wanted = None
    if kernel.unread:
        yield "kernel.error.txt", kernel.unread.encode()
    else:
        found = difference(view, kernel.tables, kernel.interface)
        as_wanted = not found.elements
        yield "diff.json", _json(found)
    unhealthy = explain_unhealthy(view, None if kernel.unread else kernel.tables, as_wanted=as_wanted)
    yield "explain.json", _rows([document(one, view.origin) for one in unhealthy])
    if view.agent is not None:
        yield from _agent_files(access, view.agent).items()
    yield from programs.outputs()


def _agent_files(access: Access, status: Status) -> Mapping[str, bytes]:
    found = {"status.json": _json(status)}
    client, _ = ask_agent(access)
    for name in ("transactions", "belief"):
        try:
            found[f"{name}.json"] = b"".join(client.lines(name))
        except NoAgent as error:
            found[f"{name}.error.txt"] = str(error).encode()
    return found


def redacted(content: bytes) -> bytes:
    """Removes passwords in URLs and tokens in headers, which logs and errors of other programs may contain."""
    return _TOKEN.sub(rb"\1***", _USER.sub(rb"\1***@", content))


def _begin_check() -> Begun | None:
    """Returns the first part of `nodeagent check`; None if it has to say itself why that fails."""
    try:
        with closing(Ruleset()) as ruleset:
            return begin_check(ruleset)
    except (DataplaneError, OSError):
        return None


def _read_kernel(view: NodeView, known: Known) -> _Kernel:
    """Reads the kernel. known: our tables, if the rules do not change."""
    try:
        tables = read_kernel(view.families, view.program if view.agent is not None else None, known=known)
        interface = None if view.interface is None else read_interface(view.interface, view.context.node_addresses)
    except (DataplaneError, OSError) as error:
        return _Kernel((), None, str(error))
    return _Kernel(tables, interface)


def _big_sets(kernel: Sequence[KernelView]) -> dict[str, int]:
    """Returns the sets of ours that are too big for nft, as {family and name: number of elements}."""
    return {
        f"{_NFT_FAMILIES[table.family]} {name}": len(elements)
        for table in kernel
        for name, elements in table.image.items()
        if len(elements) > MOST_READ_TWICE
    }


def _listings(kernel: Sequence[KernelView], big: Collection[str]) -> Iterator[Sequence[str]]:
    """Yields the programs that list all rules. Where sets of ours are too big, the others and the tables of others are listed one by
    one."""
    others: list[tuple[str, str]] | None = None
    with suppress(DataplaneError), closing(Ruleset()) as ruleset:
        others = list(table_names(ruleset)) if big else None
    if others is None:
        yield *_NFT, "list", "ruleset"
        return
    yield *_NFT, "-t", "list", "ruleset"
    yield from ((*_NFT, "list", "table", family, name) for family, name in others if name != schema.TABLE)
    for table in kernel:
        family = _NFT_FAMILIES[table.family]
        for name, held in {} if table.contents is None else table.contents.sets.items():
            if held.count != 0 and not name.startswith("__") and f"{family} {name}" not in big:
                yield *_NFT, "list", "map" if held.flags & NFT_SET_MAP else "set", family, schema.TABLE, name


def _sysctl(name: str) -> str | None:
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return None


def _json(value: object) -> bytes:
    return msgspec.json.format(_encode(value), indent=1)


def _rows(values: Sequence[object]) -> bytes:
    """Returns a list with a value in each line: there may be as many as Services."""
    return b"[" + b",".join([b"\n" + _encode(value) for value in values]) + b"\n]\n"
