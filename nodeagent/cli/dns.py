"""`nodeagent dns`: answers a name, and explains the answer."""

import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import click

from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.names_objects import Objects, Reply, objects_of_agent, reply_of
from nodeagent.cli.rows import output_option, print_document
from nodeagent.cli.user_kubeconfig import kubeconfig_paths
from nodeagent.names.feed.cluster_dns import listening_places
from nodeagent.names.feed.upstream_problems import UPSTREAM_REASONS
from nodeagent.names.upstream.upstream_address import Server, parse_server
from nodeagent.names.zone.reverse import pod_address
from nodeagent.proxy.observe.admin.admin_client import AgentClient, NoAgent, find_agent
from nodeagent.proxy.observe.admin.admin_documents import ClusterDns, KnownProblem, Status
from nodeagent.proxy.observe.admin.place import DEFAULT_SOCKET
from nodeagent.wire.dns.codes import TC, TCP_LIMIT, RecordType, type_number
from nodeagent.wire.dns.domain_names import BadName, from_text, is_below, to_text
from nodeagent.wire.dns.message import BadMessage
from nodeagent.wire.dns.query import query_packet, question_of

PATIENCE_SECONDS = 5.0
"""Time limit for an answer."""
DEFAULT_KINDS = (RecordType.A, RecordType.AAAA)


@click.command(
    "dns",
    epilog=examples(
        "nodeagent dns web.shop                     as this node answers, and why",
        "nodeagent dns 10.96.0.10",
        "nodeagent dns example.com AAAA --server 10.96.0.53",
        "nodeagent dns web.shop --manifests DIR -o json",
    ),
)
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
    help="Explain with the objects of an API server (default, if no agent answers: $KUBECONFIG).",
)
@click.option("--zone", "zones", metavar="ZONE", multiple=True, help="Default: the agent's zones, or cluster.local.")
@click.option("--socket", "agent_socket", metavar="PATH", help=f"The agent's socket (default: {DEFAULT_SOCKET}).")
@output_option
def dns_command(
    name: str,
    kind: str,
    server: str | None,
    manifests: Path | None,
    kubeconfig: Path | None,
    zones: tuple[str, ...],
    agent_socket: str | None,
    output: str,
) -> None:
    """Answer a NAME as cluster DNS does, and say why: which Service, which slice, which endpoints and which not.

    Asks --server, or else the DNS process of this node. The explanation uses the objects of the running agent, or those of
    --manifests or --kubeconfig if given or if no agent answers. Without a server, these objects also give the answer. At
    least one of them is needed. TYPE: default A and AAAA; PTR for an address. A NAME of one or two labels (web.shop) is
    treated as a Service.

    Exit codes: 0 there are records, 1 there are no records or no server answered, 2 wrong arguments or an unusable source.
    """
    agent = "it was not asked" if manifests or kubeconfig else ask_agent(agent_socket, name)
    zones = zones or (agent.dns.zones if isinstance(agent, AgentDns) else ("cluster.local",))
    try:
        question = question_name(name, zones)
        kinds = (type_number(kind),) if kind else (RecordType.PTR,) if _is_address(name) else DEFAULT_KINDS
        servers = (parse_server(server),) if server else listening_places()
    except (BadName, ValueError) as error:
        raise Failure(f"{name or repr(name)}: {error}", UNUSABLE) from error
    objects = _objects(agent, manifests, kubeconfig, zones)
    if objects is None and not servers:
        raise Failure(f"no DNS process is here, and {agent}: give --server, --manifests or --kubeconfig", UNUSABLE)
    replies, silence = [], ""
    try:
        replies = [ask(servers, question, one) for one in kinds] if servers else []
    except ServerSilent as silent:
        silence = f"{'the server' if server else 'the DNS process'} does not answer: {silent}"
        if objects is None:
            raise Failure(silence, FAILED) from silent
    reasons: list[str] = []
    if objects is not None:
        made = [objects.answer(question, one) for one in kinds]
        upstreams = upstream_lines(agent, question) if isinstance(agent, AgentDns) and None in made else ()
        reasons = [*objects.explain(question), *upstreams, *_differences(replies, made)]
        replies = replies or [own for own in made if own is not None]
    _print(to_text(question), replies, silence, "" if objects is None else objects.origin, reasons, output)
    click.get_current_context().exit(FAILED if silence or not any(one.records for one in replies) else 0)


def _differences(replies: Iterable[Reply], made: Iterable[Reply | None]) -> Iterator[str]:
    """Yields a line for each answer of a server that differs from the answer of the objects."""
    for asked, own in zip(replies, made, strict=False):
        if own is not None and (asked.rcode, sorted(asked.records)) != (own.rcode, sorted(own.records)):
            yield f"{asked.source} answers {asked.kind} differently from these objects: {own.rcode} {list(own.records)}"


def _print(name: str, replies: list[Reply], silence: str, origin: str, reasons: list[str], output: str) -> None:
    """Prints the replies in the form that the user chose.
    silence: why no server answered; empty if one did. origin: source of the objects that the reasons come from; empty
    without reasons."""
    if output in ("json", "yaml"):
        answers = [one._asdict() for one in replies]
        print_document(
            {"name": name, "silence": silence, "answers": answers, "objects": origin, "why": reasons}, output
        )
        return
    if output == "name":
        if any(one.records for one in replies):
            click.echo(name)
        return
    if silence:
        click.echo(f"{silence}; this is what the objects say:")
    for one in replies:
        click.echo(f"{name} {one.kind}: {one.rcode} ({one.source})")
        for record in one.records:
            click.echo(f"  {record}")
    if origin:
        click.echo(f"Objects: {origin}")
    for line in reasons:
        click.echo(line)


class ServerSilent(Exception):
    """No server answered; the message is one line."""


class AgentDns(NamedTuple):
    """A running agent that answers DNS, with its status and DNS settings."""

    client: AgentClient
    status: Status
    dns: ClusterDns


def _objects(
    agent: AgentDns | str, manifests: Path | None, kubeconfig: Path | None, zones: tuple[str, ...]
) -> Objects | None:
    """Returns the objects of the agent, or of a source; None without both. Raises Failure."""
    if isinstance(agent, AgentDns):
        return objects_of_agent(agent.client, agent.status, agent.dns, zones)
    if not (manifests or kubeconfig or os.environ.get("KUBECONFIG")):
        return None
    from nodeagent.cli.names_source import read_objects  # noqa: PLC0415 - loads a client of the API

    return read_objects(manifests, kubeconfig_paths(kubeconfig), zones)


def ask_agent(path: str | None, name: str) -> AgentDns | str:
    """Returns the agent of this node, or the reason why it cannot be used. Asks it for the pod that `name` stands for, if any."""
    try:
        client, status = find_agent(None if path is None else Path(path), DEFAULT_SOCKET)
        address = pod_address(name.lower().partition(".")[0].encode("utf-8", "replace"))
        dns = client.ask("cluster-dns" if address is None else f"cluster-dns?pod={quote(address)}", ClusterDns)
    except NoAgent as error:
        return str(error)
    if not dns.enabled:
        return f"the agent of node {status.node} answers no names (dns.enabled)"
    return AgentDns(client, status, dns)


def upstream_lines(agent: AgentDns, question: bytes) -> Iterator[str]:
    """Yields a line with the upstream servers for a name outside the cluster's zones, and one for each of their problems."""
    stubs = [server for zone, server in agent.dns.stub_zones if is_below(question.lower(), from_text(zone.lower()))]
    servers = stubs or agent.dns.upstreams
    yield f"servers that are asked: {', '.join(servers) or 'the resolvers of the node (resolv.conf)'}"
    for one in agent.client.ask("problems", tuple[KnownProblem, ...]):
        if one.reason in UPSTREAM_REASONS:
            yield one.detail


def question_name(text: str, zones: Iterable[str]) -> bytes:
    """Returns the wire form of a typed name; for an address, its reverse name. Raises BadName."""
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
    """Returns the answer of the first server that answers. Raises ServerSilent."""
    error = ""
    for server in servers:
        try:
            return reply_of(exchange(server, name, kind), kind, str(server))
        except (OSError, BadMessage) as failed:
            reason = failed.strerror if isinstance(failed, OSError) else None
            error = f"no answer from {server}: {reason or failed}"
    raise ServerSilent(error)


def exchange(server: Server, name: bytes, kind: int) -> bytes:
    """Returns the response to a question; uses TCP if the UDP response is truncated. Raises OSError."""
    packet = query_packet(secrets.randbits(16), question_of(name, kind))
    family = socket.AF_INET6 if ":" in server.address else socket.AF_INET
    end = time.monotonic() + PATIENCE_SECONDS
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect(server)
        sock.send(packet)
        response = b""
        while response[:2] != packet[:2]:
            sock.settimeout(max(0.001, end - time.monotonic()))
            response = sock.recv(TCP_LIMIT)
    if len(response) > 2 and not response[2] & TC:  # noqa: PLR2004  # the byte of TC
        return response
    with socket.create_connection(server, PATIENCE_SECONDS) as sock, sock.makefile("rb") as file:
        sock.sendall(len(packet).to_bytes(2, "big") + packet)
        return file.read(int.from_bytes(file.read(2), "big"))
