"""The objects that `nodeagent dns` answers and explains with: those an agent holds; names_source.py reads those of a source."""

import time
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import NamedTuple

import msgspec

from nodeagent.cli.exit_codes import FAILED, Failure
from nodeagent.model.names import ObjectKey
from nodeagent.model.snapshot import FixedSnapshot, Snapshot
from nodeagent.names.zone.explanation import explain
from nodeagent.names.zone.index import Index
from nodeagent.names.zone.lookup import Lookup, ZoneSettings
from nodeagent.names.zone.prepared_answers import PreparedAnswers
from nodeagent.names.zone.service_names import names_of
from nodeagent.names.zone.unservable import faults_of
from nodeagent.proxy.observe.admin.admin_client import AgentClient, NoAgent
from nodeagent.proxy.observe.admin.admin_documents import ClusterDns, Status, WorldService
from nodeagent.wire.dns.codes import TCP_LIMIT, Rcode, type_text
from nodeagent.wire.dns.message import read_message
from nodeagent.wire.dns.query import query_packet, question_of, read_query
from nodeagent.wire.dns.record_text import record_text


class Reply(NamedTuple):
    """An answer. rcode: its name. source: the server. records: the answer section as text."""

    kind: str
    rcode: str
    source: str
    records: tuple[str, ...]


def reply_of(response: bytes, kind: int, source: str) -> Reply:
    """Decodes a response. Raises BadMessage."""
    records = tuple(map(record_text, read_message(response)[1].answer))
    code = response[3] & 0x0F
    rcode = Rcode(code).name if code in set(Rcode) else f"RCODE{code}"
    return Reply(type_text(kind), rcode, source, records)


class Objects:
    """Answers names from objects. origin: the source, for output. running: pod addresses, each with the namespaces of
    running pods that have it."""

    def __init__(
        self,
        snapshot: Snapshot,
        namespaces: Collection[str],
        settings: ZoneSettings,
        origin: str,
        running: Iterable[tuple[str, Iterable[str]]] = (),
    ) -> None:
        self._snapshot = snapshot
        self._namespaces = namespaces
        self._settings = settings
        self._running = tuple(running)
        self.origin = origin

    def answer(self, name: bytes, kind: int) -> Reply | None:
        """Returns the answer for a name, or None if it must be asked upstream."""
        answers = PreparedAnswers(self._lookup, synced=True, serial=int(time.time()))
        made = answers.answer(read_query(query_packet(0, question_of(name, kind))), TCP_LIMIT)
        if isinstance(made, bytes):
            return reply_of(made, kind, self.origin)
        if made.alias is None:
            return None
        return Reply(type_text(kind), Rcode.NOERROR.name, self.origin, tuple(map(record_text, made.answer)))

    def explain(self, name: bytes) -> Iterable[str]:
        """Yields the lines that explain the answer for a name."""
        return explain(self._snapshot, self._lookup, self._settings.zones, name.lower())

    @cached_property
    def _lookup(self) -> Lookup:
        index = Index()
        index.set_namespaces(self._namespaces)
        index.put_pods(self._running)
        for key, service in self._snapshot.services.items():
            slices = self._snapshot.slices_of(key)
            made = names_of(service, slices)
            if not any(fault.whole for fault in faults_of(service, slices, made, self._settings.zones)):
                index.put(made)
        return Lookup(self._settings, index)


def objects_of_agent(client: AgentClient, status: Status, dns: ClusterDns, zones: tuple[str, ...]) -> Objects:
    """Returns the objects of a running agent. dns: its DNS settings. Raises Failure."""
    decoder = msgspec.json.Decoder(WorldService)
    try:
        lines = client.lines("world")
        next(lines)  # the node, which has no names
        found = list(map(decoder.decode, lines))
    except NoAgent as error:
        raise Failure(str(error), FAILED) from error
    settings = ZoneSettings(
        zones=zones, ttl=dns.ttl, pods=dns.pods, server=ObjectKey(*dns.server), addresses=dns.addresses
    )
    origin = f"the agent of node {status.node} at {client.path} (process {status.pid}, {status.source})"
    services = {one.key: one.service for one in found if one.service is not None}
    held = FixedSnapshot(services, {one.key: one.slices for one in found})
    return Objects(held, dns.namespaces, settings, origin, dns.running)
