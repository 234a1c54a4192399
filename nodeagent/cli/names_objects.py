"""The objects that `nodeagent dns` answers and explains with: those an agent holds, or those of a source."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from nodeagent.model.snapshot import Snapshot
from nodeagent.names.zone.explanation import explain
from nodeagent.names.zone.index import Index
from nodeagent.names.zone.lookup import Lookup, ZoneSettings
from nodeagent.names.zone.prepared_answers import PreparedAnswers
from nodeagent.names.zone.service_names import names_of
from nodeagent.names.zone.unservable import faults_of
from nodeagent.proxy.observe.admin.admin_client import AgentClient, NoAgent
from nodeagent.proxy.observe.admin.admin_documents import ClusterDns, Status, WorldService
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import KubeconfigError
from nodeagent.proxy.source.client.kubeconfig import load_kubeconfig
from nodeagent.proxy.source.manifests.manifest_error import ManifestError
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_source import source_of
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.wire.dns.codes import TCP_LIMIT, Rcode, type_text
from nodeagent.wire.dns.message import read_message
from nodeagent.wire.dns.query import query_packet, question_of, read_query
from nodeagent.wire.dns.record_text import record_text

LIST_SECONDS = 10.0


class Reply(NamedTuple):
    """rcode: by its name. source: who answered. records: of the answer section, as text."""

    kind: str
    rcode: str
    source: str
    records: tuple[str, ...]


def reply_of(response: bytes, kind: int, source: str) -> Reply:
    """What a response says. Raises BadMessage."""
    records = tuple(map(record_text, read_message(response)[1].answer))
    code = response[3] & 0x0F
    rcode = Rcode(code).name if code in set(Rcode) else f"RCODE{code}"
    return Reply(type_text(kind), rcode, source, records)


class Objects:
    """What a source says, as names take it. origin: the source, for a person. running: addresses of pods, each with the
    namespaces of those that run there."""

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
        """What these objects give a name; None when it is to be asked upstream."""
        answers = PreparedAnswers(self._lookup, synced=True, serial=int(time.time()))
        made = answers.answer(read_query(query_packet(0, question_of(name, kind))), TCP_LIMIT)
        if isinstance(made, bytes):
            return reply_of(made, kind, self.origin)
        if made.alias is None:
            return None
        return Reply(type_text(kind), Rcode.NOERROR.name, self.origin, tuple(map(record_text, made.answer)))

    def explain(self, name: bytes) -> Iterable[str]:
        """Why."""
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


class _Held:
    """Objects as an agent reported them."""

    def __init__(self, told: Iterable[WorldService]) -> None:
        self.node: Node | None = None
        self.service_cidrs: tuple[ServiceCIDR, ...] = ()
        self.services: Mapping[ObjectKey, Service] = {}
        self._slices: dict[ObjectKey, tuple[EndpointSlice, ...]] = {}
        found = {}
        for one in told:
            self._slices[one.key] = one.slices
            if one.service is not None:
                found[one.key] = one.service
        self.services = found

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        return self._slices.get(service, ())


def objects_of_agent(client: AgentClient, status: Status, dns: ClusterDns, zones: tuple[str, ...]) -> Objects:
    """What a running agent holds; dns: how it answers. Raises Failure."""
    decoder = msgspec.json.Decoder(WorldService)
    try:
        lines = client.lines("world")
        next(lines)  # the node, which has no names
        held = _Held(map(decoder.decode, lines))
    except NoAgent as error:
        raise Failure(str(error), FAILED) from error
    settings = ZoneSettings(
        zones=zones, ttl=dns.ttl, pods=dns.pods, server=ObjectKey(*dns.server), addresses=dns.addresses
    )
    origin = f"the agent of node {status.node} at {client.path} (process {status.pid}, {status.source})"
    return Objects(held, dns.namespaces, settings, origin, dns.running)


def read_objects(manifests: Path | None, kubeconfig: Path | None, zones: tuple[str, ...]) -> Objects:
    """All of a source. Raises Failure."""
    try:
        return asyncio.run(asyncio.wait_for(_read(manifests, kubeconfig, zones), LIST_SECONDS))
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
        self.namespaces = asyncio.Event()

    def service_changed(self, key: ObjectKey) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None:
        self.all.set()

    def all_listed(self) -> None: ...


async def _read(manifests: Path | None, kubeconfig: Path | None, zones: tuple[str, ...]) -> Objects:
    listed = _Listed()
    store = ClusterStore(listed, for_names=True)
    namespaces = NamespaceNames(listed.namespaces.set)
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
        for_names=True,
        namespaces=namespaces,
    )
    if client is None:
        await _until_listed(source.run, listed)
    else:
        async with client:
            await _until_listed(source.run, listed)
    return Objects(store, namespaces.names or (), ZoneSettings(zones=zones), str(manifests or kubeconfig))


async def _until_listed(run: Callable[[], Coroutine[None, None, None]], listed: _Listed) -> None:
    feeding = asyncio.create_task(run(), name="source")
    for event in (listed.all, listed.namespaces):
        waiting = asyncio.create_task(event.wait(), name="first lists")
        await asyncio.wait((feeding, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    feeding.cancel()
    with suppress(asyncio.CancelledError):
        await feeding
