"""`nodeagent dns`: what a name is answered, and why."""

import asyncio
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import click

from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.dns.feed.node_names import listening_places
from nodeagent.dns.upstream.server import Server, parse_server
from nodeagent.dns.wire.codes import CLASS_IN, RD, TC, TCP_LIMIT, Kind, Rcode, kind_number, kind_text
from nodeagent.dns.wire.message import BadMessage, read_message
from nodeagent.dns.wire.names import BadName, from_text, is_below, to_text
from nodeagent.dns.wire.query import read_query
from nodeagent.dns.wire.text import record_text
from nodeagent.dns.zone.explanation import explain
from nodeagent.dns.zone.index import Index
from nodeagent.dns.zone.lookup import Lookup, ZoneSettings
from nodeagent.dns.zone.prepared import Answers
from nodeagent.dns.zone.service_names import names_of
from nodeagent.dns.zone.unservable import faults_of
from nodeagent.kube.client import ApiClient
from nodeagent.kube.errors import KubeconfigError
from nodeagent.kube.kubeconfig import load_kubeconfig
from nodeagent.kube.manifest_source import ManifestError
from nodeagent.kube.namespaces import NamespaceNames
from nodeagent.kube.source import source_of
from nodeagent.kube.store import ClusterStore
from nodeagent.model.names import ObjectKey

PATIENCE_SECONDS = 5.0
"""For an answer; twice that for the objects."""
DEFAULT_KINDS = (Kind.A, Kind.AAAA)


class Reply(NamedTuple):
    """rcode: by its name. source: who answered. records: of the answer section, as text."""

    kind: str
    rcode: str
    source: str
    records: tuple[str, ...]


@click.command("dns")
@click.argument("name")
@click.argument("kind", metavar="[TYPE]", default="")
@click.option(
    "--server", metavar="ADDR[:PORT]", help="Ask this server (default: the DNS process of this node, if any)."
)
@click.option(
    "--manifests", metavar="DIR", type=click.Path(path_type=Path), help="Explain with the objects of a directory."
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=lambda: os.environ.get("KUBECONFIG"),
    help="Explain with the objects of an API server (default: $KUBECONFIG).",
)
@click.option("--zone", "zones", metavar="ZONE", multiple=True, default=("cluster.local",), show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def dns_command(
    name: str,
    kind: str,
    server: str | None,
    manifests: Path | None,
    kubeconfig: Path | None,
    zones: tuple[str, ...],
    output: str,
) -> None:
    """Answer a NAME as cluster DNS does, and say why: which Service, which slice, which endpoints and which not.

    The node's DNS process is asked if there is one, or --server; the objects are read from --manifests or --kubeconfig.
    At least one of both is needed. TYPE: A and AAAA if it is not given, PTR for an address. A NAME of one or two
    labels (web.shop) is taken for a Service's.

    Exit codes: 0 there are records, 1 there are none or nobody answered, 2 wrong arguments or an unusable source.
    """
    try:
        question = question_name(name, zones)
        kinds = (kind_number(kind),) if kind else (Kind.PTR,) if _is_address(name) else DEFAULT_KINDS
        servers = (parse_server(server),) if server else listening_places()
    except (BadName, ValueError) as error:
        raise Failure(f"{name}: {error}" if str(error) not in name else str(error), UNUSABLE) from error
    sources = manifests or kubeconfig
    if not servers and not sources:
        raise Failure("no DNS process is here: give --server, --manifests or --kubeconfig", UNUSABLE)
    replies = [ask(servers, question, one) for one in kinds] if servers else []
    reasons: list[str] = []
    if sources:
        objects = read_objects(manifests, kubeconfig)
        made = [objects.answer(zones, question, one) for one in kinds]
        reasons = list(objects.explain(zones, question))
        for asked, own in zip(replies, made, strict=False):
            if own is not None and (asked.rcode, sorted(asked.records)) != (own.rcode, sorted(own.records)):
                reasons.append(
                    f"{asked.source} answers {asked.kind} otherwise than these objects do: {own.rcode} {list(own.records)}"
                )
        replies = replies or [own for own in made if own is not None]
    if output == "json":
        document = {"name": to_text(question), "answers": [one._asdict() for one in replies], "why": reasons}
        click.echo(json.dumps(document, indent=2))
    else:
        for one in replies:
            click.echo(f"{to_text(question)} {one.kind}: {one.rcode} ({one.source})")
            for record in one.records:
                click.echo(f"  {record}")
        for line in reasons:
            click.echo(line)
    click.get_current_context().exit(0 if any(one.records for one in replies) else FAILED)


def question_name(text: str, zones: Iterable[str]) -> bytes:
    """The wire form of what a person calls a name: an address is its reverse name. Raises BadName."""
    if _is_address(text):
        return from_text(ip_address(text).reverse_pointer)
    wire = from_text(text)
    known = [from_text(zone.lower()) for zone in zones]
    if text.endswith(".") or any(is_below(wire.lower(), zone) for zone in known):
        return wire
    labels = text.split(".")
    if len(labels) == 1:
        return from_text(f"{text}.default.svc.")[:-1] + known[0]
    if len(labels) == 2 or labels[-1] in ("svc", "pod"):  # noqa: PLR2004  # name and namespace
        tree = "" if labels[-1] in ("svc", "pod") else ".svc"
        return from_text(f"{text}{tree}")[:-1] + known[0]
    return wire


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def ask(servers: tuple[Server, ...], name: bytes, kind: int) -> Reply:
    """The answer of the first server that gives one. Raises Failure."""
    error = ""
    for server in servers:
        try:
            return reply_of(exchange(server, name, kind), kind, str(server))
        except (OSError, BadMessage) as failed:
            error = f"no answer from {server}: {failed}"
    raise Failure(error, FAILED)


def exchange(server: Server, name: bytes, kind: int) -> bytes:
    """The whole response to a question, by TCP when it does not fit. Raises OSError."""
    ident = secrets.token_bytes(2)
    packet = ident + bytes((RD, 0)) + b"\0\1" + bytes(6) + name + kind.to_bytes(2, "big") + CLASS_IN.to_bytes(2, "big")
    family = socket.AF_INET6 if ":" in server.address else socket.AF_INET
    end = time.monotonic() + PATIENCE_SECONDS
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect(server)
        sock.send(packet)
        response = b""
        while response[:2] != ident:
            sock.settimeout(max(0.001, end - time.monotonic()))
            response = sock.recv(TCP_LIMIT)
    if len(response) > 2 and not response[2] & TC:  # noqa: PLR2004  # the byte of TC
        return response
    with socket.create_connection(server, PATIENCE_SECONDS) as sock, sock.makefile("rb") as file:
        sock.sendall(len(packet).to_bytes(2, "big") + packet)
        return file.read(int.from_bytes(file.read(2), "big"))


def reply_of(response: bytes, kind: int, source: str) -> Reply:
    """What a response says. Raises BadMessage."""
    records = tuple(map(record_text, read_message(response)[1].answer))
    code = response[3] & 0x0F
    rcode = Rcode(code).name if code in set(Rcode) else f"RCODE{code}"
    return Reply(kind_text(kind), rcode, source, records)


class Objects:
    """What a source says, as names take it."""

    def __init__(self, store: ClusterStore, namespaces: frozenset[str], source: str) -> None:
        self._store = store
        self._namespaces = namespaces
        self._source = source

    def answer(self, zones: tuple[str, ...], name: bytes, kind: int) -> Reply | None:
        """What these objects give a name; None when it is to be asked upstream."""
        answers = Answers(self._lookup(zones), synced=True, serial=int(time.time()))
        packet = (
            bytes((0, 0, RD, 0)) + b"\0\1" + bytes(6) + name + kind.to_bytes(2, "big") + CLASS_IN.to_bytes(2, "big")
        )
        made = answers.answer(read_query(packet), TCP_LIMIT)
        if isinstance(made, bytes):
            return reply_of(made, kind, self._source)
        if made.alias is None:
            return None
        return Reply(kind_text(kind), Rcode.NOERROR.name, self._source, tuple(map(record_text, made.answer)))

    def explain(self, zones: tuple[str, ...], name: bytes) -> Iterable[str]:
        """Why."""
        return explain(self._store, self._lookup(zones), zones, name.lower())

    def _lookup(self, zones: tuple[str, ...]) -> Lookup:
        index = Index()
        index.set_namespaces(self._namespaces)
        for key, service in self._store.services.items():
            slices = self._store.slices_of(key)
            made = names_of(service, slices)
            if not any(fault.whole for fault in faults_of(service, slices, made, zones)):
                index.put(made)
        return Lookup(ZoneSettings(zones=zones), index)


def read_objects(manifests: Path | None, kubeconfig: Path | None) -> Objects:
    """All of a source. Raises Failure."""
    try:
        return asyncio.run(asyncio.wait_for(_read(manifests, kubeconfig), 2 * PATIENCE_SECONDS))
    except TimeoutError:
        raise Failure(
            f"{manifests or kubeconfig}: Services and EndpointSlices were not listed in time", FAILED
        ) from None
    except (KubeconfigError, ManifestError) as error:
        raise Failure(str(error), UNUSABLE) from error


class _Listed:
    """Waits for the first lists."""

    def __init__(self) -> None:
        self.all = asyncio.Event()

    def service_changed(self, key: ObjectKey) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None:
        self.all.set()

    def all_listed(self) -> None: ...


async def _read(manifests: Path | None, kubeconfig: Path | None) -> Objects:
    listed = _Listed()
    store = ClusterStore(listed, keep_headless=True)
    namespaces = NamespaceNames(lambda: None)
    if manifests is not None:
        client = None
    else:
        assert kubeconfig is not None, "a source is one of the two"
        client = ApiClient(load_kubeconfig(kubeconfig))
    source = source_of(
        client,
        manifests,
        store,
        node_name="",
        endpoints_api="auto",
        keep_headless=True,
        namespaces=namespaces,
    )
    if client is None:
        await _until_listed(source.run, listed)
    else:
        async with client:
            await _until_listed(source.run, listed)
    return Objects(store, namespaces.names, str(manifests or kubeconfig))


async def _until_listed(run: Callable[[], Coroutine[None, None, None]], listed: _Listed) -> None:
    feeding = asyncio.create_task(run(), name="source")
    waiting = asyncio.create_task(listed.all.wait(), name="first lists")
    await asyncio.wait((feeding, waiting), return_when=asyncio.FIRST_COMPLETED)
    feeding.cancel()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await feeding
