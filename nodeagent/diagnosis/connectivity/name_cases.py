"""Cases by name: as a pod's resolver asks, and as a program asks for SRV records (pure)."""

from collections.abc import Iterator

from nodeagent.diagnosis.connectivity.cases import Caller, Case, Cases, Column, Skipped, Trace, clients, titled
from nodeagent.diagnosis.connectivity.judgement import Expected
from nodeagent.diagnosis.connectivity.objects import HEADLESS, PORT, service_of_node
from nodeagent.diagnosis.connectivity.requests import Request
from nodeagent.diagnosis.connectivity.stage import ClusterResolver, DeployedObjects
from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.wire.dns.codes import RecordType
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.query import query_packet, question_of

DNS_PORT = 53
SECONDS = 5.0
"""Timeout of a lookup, which tries several names."""
NO_RESOLVER = "the pods' resolv.conf has no search domain NAMESPACE.svc.DOMAIN, so that cluster DNS is not used"


def name_cases(stage: DeployedObjects) -> Cases:
    if not stage.resolver.domain:
        yield from (Skipped("names", column, NO_RESOLVER) for column in (Column.SAME_NODE, Column.NODE))
        return
    for family in stage.families:
        yield from _of_service(stage, family)
        yield from _headless(stage, family)
    yield from _srv(stage)


def _of_service(stage: DeployedObjects, family: Family) -> Cases:
    """Yields cases that look a name up and connect."""
    domain = stage.resolver.domain
    for number, target in enumerate(stage.nodes):
        service = service_of_node(number)
        if family not in stage.services[service].cluster_ips:
            continue
        for text, name in (
            ("name, short", service),
            ("name, with namespace", f"{service}.{stage.namespace}"),
            ("name, full", f"{service}.{stage.namespace}.svc.{domain}."),
        ):
            for column, _, source in clients(stage, target):
                request = Request("tcp", family, name, PORT, seconds=SECONDS)
                row, expected = titled(stage, family, text), Expected((target.server.name,))
                yield _case(stage, row, column, source, request, expected)


def _headless(stage: DeployedObjects, family: Family) -> Cases:
    row = titled(stage, family, "name, headless: every pod")
    found = frozenset(node.server.addresses[family] for node in stage.nodes if family in node.server.addresses)
    if not found:
        return
    name = f"{HEADLESS}.{stage.namespace}.svc.{stage.resolver.domain}."
    for column, _, source in clients(stage):
        request = Request("resolve", family, name, seconds=SECONDS)
        yield _case(stage, row, column, source, request, Expected(addresses=found))


def _srv(stage: DeployedObjects) -> Iterator[Case]:
    name = f"{service_of_node(0)}.{stage.namespace}.svc.{stage.resolver.domain}."
    message = query_message(f"_tcp._tcp.{name}", RecordType.SRV)
    server = stage.resolver.address
    for column, _, source in clients(stage):
        request = Request("query", family_of(server), server, DNS_PORT, seconds=SECONDS, message=message.hex())
        yield _case(stage, "name, SRV", column, source, request, Expected(targets=frozenset({name})))


def query_message(name: str, kind: RecordType) -> bytes:
    """Returns a question with recursion desired. Raises BadName."""
    return query_packet(0x4E41, question_of(from_text(name), kind))


def _case(
    stage: DeployedObjects, row: str, column: Column, source: Caller, request: Request, expected: Expected
) -> Case:
    return Case(row, column, source, request, expected, _trace(stage.resolver, source))


def _trace(resolver: ClusterResolver, source: Caller) -> Trace | None:
    """Returns the connection to the resolver; None without an address."""
    if not resolver.address or (address := source.addresses.get(family_of(resolver.address))) is None:
        return None
    return Trace(source.node, address, resolver.address, DNS_PORT, Protocol.UDP)
