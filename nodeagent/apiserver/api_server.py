"""Composition of the API server: the only module that builds its parts. They start in the order of this code and stop in
reverse."""

import asyncio
import logging
import random
import secrets
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Protocol

from nodeagent.apiserver.address_objects import AddressObjects
from nodeagent.apiserver.addresses.allocation import Allocator
from nodeagent.apiserver.addresses.ranges import RangeRefused, parse_port_range, parse_service_ranges
from nodeagent.apiserver.addresses.service_ranges import ServiceRanges
from nodeagent.apiserver.api import issued_kubeconfig, pki
from nodeagent.apiserver.api.account_tokens import Account, AccountTokens, BearerTokens
from nodeagent.apiserver.api.authorization import Tokens
from nodeagent.apiserver.api.event_limits import EventLimits, EventRoom
from nodeagent.apiserver.api.handler import VERSION, ApiHandler
from nodeagent.apiserver.api.health_checks import CHECKS, HealthChecks
from nodeagent.apiserver.api.listener import Listener
from nodeagent.apiserver.api.protobuf_answers import ProtobufAnswers
from nodeagent.apiserver.api.request_figures import RequestFigures
from nodeagent.apiserver.api.resource_verbs import ResourceVerbs
from nodeagent.apiserver.api.shared_credentials import SharedCredentials
from nodeagent.apiserver.bootstrap import bootstrap, create_default_range, stored_ranges
from nodeagent.apiserver.certificate_watch import CertificateWatch
from nodeagent.apiserver.controllers.elected import ElectedControllers
from nodeagent.apiserver.controllers.election import Election
from nodeagent.apiserver.controllers.kubernetes_service import KEY as KUBERNETES
from nodeagent.apiserver.controllers.kubernetes_service import KubernetesService
from nodeagent.apiserver.controllers.mirroring import Mirror
from nodeagent.apiserver.controllers.repair import Repair
from nodeagent.apiserver.controllers.store_space import StoreSpace
from nodeagent.apiserver.live_servers import AdvertisedAddress, has_predecessors, kube_apiservers
from nodeagent.apiserver.machinery.loop_time import LoopTime
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.machinery.request_worker import Worker
from nodeagent.apiserver.scrapes import EtcdFigures, Scrapes
from nodeagent.apiserver.scratch import scratch_directory
from nodeagent.apiserver.server_settings import ServerSettings, SettingsRefused, check
from nodeagent.apiserver.service_writes import writes_by_collection
from nodeagent.apiserver.storage.records import HistoryLost, StorageFailed, StorageFull
from nodeagent.apiserver.storage.store import Store
from nodeagent.apiserver.storages import etcd_storage, local_storage
from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description.resources import Catalog
from nodeagent.runtime.serving.admission import Admission

logger = logging.getLogger(__name__)
_NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_CATCH_UP_EVERY_SECONDS: Final = 0.1
_MAKE_ROOM_EVERY_SECONDS: Final = 0.25
_CHECK_REMOTE_EVERY_SECONDS: Final = 2.0
"""For a storage that reports changes of other servers itself: how often to check that it still answers."""


class Notifier(Protocol):
    """The process that started the server and follows its state (systemd)."""

    def ready(self, status: str) -> None:
        """Called once, when requests are answered. status: one line for people."""
        ...

    def stopping(self) -> None:
        """Called when the server begins to stop."""
        ...


class SystemClock:
    """The machine's clocks."""

    def time(self) -> float:
        """Returns seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Returns monotonic seconds."""
        return time.monotonic()


class SystemRandomSource:
    """Random names, UIDs and choices of free addresses. None of them is a secret, so a fast generator is enough."""

    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - see above

    def suffix(self, length: int) -> str:
        """Returns letters and digits that spell no words (k8s.io/apimachinery/pkg/util/rand)."""
        return "".join(self._random.choices(_NAME_ALPHABET, k=length))

    def uid(self) -> str:
        """Returns a random UUID."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def randrange(self, start: int, stop: int) -> int:
        """Returns a number from `start` up to, but not including, `stop`."""
        return self._random.randrange(start, stop)


class ApiServer:
    """One server. `mirror` converts Endpoints to slices; `run` serves until it is cancelled or `stop` is called."""

    def __init__(self, settings: ServerSettings, *, mirror: Mirror, notifier: Notifier) -> None:
        self._settings = settings
        self._checked = check(settings)
        self._mirror = mirror
        self._notifier = notifier
        self._clock = SystemClock()
        self._chance = SystemRandomSource()
        self._stop = asyncio.Event()
        self.port = 0
        """The port on which it listens, once it is ready."""
        self.credentials: pki.Credentials | None = None
        """None without TLS."""
        self.ready = asyncio.Event()
        self._failing: list[str] = ["starting"]
        self._store_in_use: Store | None = None
        self._catalog = all_kinds()
        self._calls = EtcdFigures(self._catalog)
        self._fatal_error: Exception | None = None

    def failing(self) -> list[str]:
        """Returns the names of the readiness checks that fail."""
        store = self._store_in_use
        if store is None:
            return self._failing
        return [
            *self._failing,
            *(["etcd"] if not store.reachable else []),
            *(["store-space"] if store.short else []),
        ]

    def why(self, check: str) -> str:
        """Returns why a check fails, for readers and administrators; empty if that is not known."""
        return self._store_in_use.failure_reason if check == "etcd" and self._store_in_use is not None else ""

    def stop(self) -> None:
        """Makes `run` end: watches first, then connections, then the store."""
        self._stop.set()

    async def run(self) -> None:
        """Serves. Raises SettingsRefused, CertificateFailed, StorageFailed, OSError at the start; HistoryLost later."""
        async with AsyncExitStack() as stack:
            catalog = self._catalog
            store, shared = await self._open(stack, catalog)
            self._check_ranges(store)
            worker = stack.enter_context(Worker())
            loop_time = LoopTime(self._clock.monotonic)
            objects = AddressObjects(self._chance.uid, self._clock.time)

            def is_beside_others() -> bool:
                return bool(kube_apiservers(store))

            allocator = Allocator(
                store,
                ServiceRanges(store, self._checked.ranges),
                parse_port_range(self._settings.node_ports),
                self._chance,
                objects.describe,
                kept={self._checked.ranges[0].first: KUBERNETES},
                has_predecessors=lambda: has_predecessors(store),
            )
            registry = Registry(
                store,
                catalog,
                writes_by_collection(catalog, allocator),
                chance=self._chance,
                clock=self._clock.time,
                worker=worker,
                is_beside_others=is_beside_others,
                has_collector=self._settings.has_collector,
            )
            await bootstrap(store, registry, catalog, self._checked.ranges, self._clock.time)
            ports = parse_port_range(self._settings.node_ports)
            repair = Repair(store, objects.describe, ports, self._clock.time, is_beside_others=is_beside_others)
            await repair.begin()
            ending = asyncio.Event()
            key = self.credentials.account_key if self.credentials is not None else secrets.token_bytes()
            accounts = AccountTokens(key, self._clock.time)
            static = self.credentials.tokens if self.credentials is not None else Tokens({})
            admission = Admission(self._settings.connections, self._clock.monotonic)
            figures = RequestFigures(self._clock.monotonic)
            context = self.credentials.server_context() if self.credentials is not None else None
            certificates = self._certificate_watch(context)
            scrapes = Scrapes(
                figures,
                self._calls,
                store,
                catalog,
                checks=CHECKS,
                failing=self.failing,
                version=VERSION,
                certificates=certificates.instruments if certificates is not None else tuple,
            )
            health = HealthChecks(self)
            handler = ApiHandler(
                ResourceVerbs(
                    *(store, registry, catalog, accounts),
                    clock=self._clock,
                    worker=worker,
                    loop_time=loop_time,
                    event_limits=EventLimits(EventRoom.within(self._settings.limit_bytes)),
                    stopping=ending,
                ),
                catalog,
                BearerTokens(static, accounts, lambda account: _is_current(store, account)),
                health,
                address=f"{self._checked.advertised}:{self._settings.port}",
                admission=admission,
                figures=figures,
                scrape=scrapes.text,
                scrape_checks=lambda: scrapes.text_of(health.instruments()),
                protobuf=ProtobufAnswers(stack.enter_context(Worker())),
                loop_time=loop_time,
                worker=worker,
                everybody_is_admin=self.credentials is None,
            )
            listener = await stack.enter_async_context(
                Listener(handler, self._settings.host, self._settings.port, context, admission=admission)
            )
            self.port = listener.port
            loops = self._loops(store, registry, catalog, repair) + ([shared.run()] if shared is not None else [])
            if certificates is not None:
                loops.append(certificates.run())
            await self._serve(store, loops, ending)

    async def _serve(self, store: Store, loops: Sequence[Coroutine[None, None, None]], ending: asyncio.Event) -> None:
        await asyncio.to_thread(self._write_kubeconfig)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            tasks.append(group.create_task(self._every(self._settings.forget_every_seconds, store.compact)))
            tasks.append(group.create_task(self._every(_MAKE_ROOM_EVERY_SECONDS, lambda: _make_room(store))))
            if store.shared:
                seconds = _CHECK_REMOTE_EVERY_SECONDS if store.remote else _CATCH_UP_EVERY_SECONDS
                tasks.append(group.create_task(self._every(seconds, store.catch_up)))
            self._failing = []
            self.ready.set()
            self._notifier.ready(f"serving on {self._settings.host}:{self.port}")
            logger.info("serving address=%s port=%d revision=%d", self._settings.host, self.port, store.revision)
            try:
                await self._stop.wait()
            finally:
                self._failing = ["shutdown"]
                self._notifier.stopping()
                ending.set()
                store.wake()
                for task in tasks:
                    task.cancel()
        if self._fatal_error is not None:
            raise self._fatal_error

    async def _every(self, seconds: float, action: Callable[[], Coroutine[None, None, None]]) -> None:
        last_logged = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                await action()
                last_logged = ""
            except HistoryLost as error:
                # Its data is outdated and no write could succeed: the operator or systemd restarts it.
                self._fatal_error = error
                self._stop.set()
                return
            except (StorageFailed, StorageFull) as error:
                if type(error).__name__ != last_logged and not self.why("etcd"):
                    logger.warning("store maintenance failed error=%s", error)
                last_logged = type(error).__name__

    async def _open(self, stack: AsyncExitStack, catalog: Catalog) -> tuple[Store, SharedCredentials | None]:
        """Returns the open store; and, with etcd, the credentials that all servers share. Sets this server's credentials."""
        if self._settings.insecure:
            store = self._store_in_use = await stack.enter_async_context(self._store(catalog))
            return store, None
        directory = self._settings.data_dir or stack.enter_context(scratch_directory())
        if self._settings.etcd is None:
            credentials_task = asyncio.ensure_future(self._credentials(directory))
            try:
                store = self._store_in_use = await stack.enter_async_context(self._store(catalog))
            finally:
                self.credentials = await credentials_task
            return store, None
        store = self._store_in_use = await stack.enter_async_context(self._store(catalog))
        shared = SharedCredentials(store, directory / "pki")
        if not await shared.fetch():
            self.credentials = await self._credentials(directory)
            if await shared.offer():
                return store, shared
            await shared.fetch()
        self.credentials = await self._credentials(directory)
        return store, shared

    def _store(self, catalog: Catalog) -> Store:
        settings = self._settings
        if settings.data_dir is not None:
            settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if settings.etcd is not None:
            memory = settings.data_dir
            storage = etcd_storage(settings.etcd, catalog, self._clock.time, self._calls.called, memory)
        else:
            storage = local_storage(None if settings.in_memory else settings.data_dir, settings.limit_bytes)
        return Store(storage, window=settings.window, clock=self._clock.time)

    def _certificate_watch(self, context: ssl.SSLContext | None) -> CertificateWatch | None:
        """Returns the watch of this server's certificates and of those for etcd; None without TLS."""
        credentials, etcd = self.credentials, self._settings.etcd
        if credentials is None or context is None:
            return None
        named = {} if etcd is None else {"etcd client": etcd.certfile, "etcd authority": etcd.cafile}
        return CertificateWatch(
            credentials,
            context,
            {what: path for what, path in named.items() if path is not None},
            renew=lambda: pki.prepare(credentials.directory, self._addresses()),
            now=self._clock.time,
        )

    async def _credentials(self, directory: Path) -> pki.Credentials:
        return await asyncio.to_thread(pki.prepare, directory / "pki", self._addresses())

    def _addresses(self) -> set[str]:
        """Returns the addresses that the server's certificate names."""
        host = self._settings.host
        addresses = {self._checked.advertised, *(found.first for found in self._checked.ranges)}
        if host != "localhost" and not ip_address(host).is_unspecified:
            addresses.add(host)
        return addresses

    def _check_ranges(self, store: Store) -> None:
        """Raises SettingsRefused if the service range changed, or overlaps the pod range of a node."""
        known = stored_ranges(store)
        wanted = [str(found.network) for found in self._checked.ranges]
        if known and known != wanted[: len(known)]:
            raise SettingsRefused(f"this store uses service range {','.join(known)}, not {','.join(wanted)}")
        taken = [
            (f"pod range of node {record.name}", text)
            for record in store.collection("nodes").records.values()
            for text in record.document()["spec"].get("podCIDRs") or []
        ]
        try:
            parse_service_ranges(self._settings.service_ranges, taken)
        except RangeRefused as error:
            raise SettingsRefused(str(error)) from None

    def _write_kubeconfig(self) -> None:
        path = self._settings.kubeconfig_out
        if path is None:
            return
        credentials = self.credentials
        host = self._checked.advertised if ip_address(self._settings.host).is_unspecified else self._settings.host
        text = issued_kubeconfig.render(
            f"{'http' if credentials is None else 'https'}://{f'[{host}]' if ':' in host else host}:{self.port}",
            authority=credentials.authority.read_bytes() if credentials is not None else None,
            token=credentials.admin_token if credentials is not None else "",
        )
        pki.write_private(path, text)

    def _loops(
        self, store: Store, registry: Registry, catalog: Catalog, repair: Repair
    ) -> list[Coroutine[None, None, None]]:
        kubernetes = KubernetesService(
            store,
            registry,
            catalog,
            address=self._checked.ranges[0].first,
            advertised=AdvertisedAddress(self._checked.advertised, self.port),
            options={
                "--service-cluster-ip-range": ",".join(str(found.network) for found in self._checked.ranges),
                "--service-node-port-range": self._settings.node_ports,
                "--load-balancer-cidr": ",".join(map(str, self._checked.balancers)),
            },
        )
        elected = ElectedControllers(
            store,
            registry,
            catalog,
            mirror=self._mirror,
            balancers=self._checked.balancers,
            default_range=lambda: create_default_range(
                store, registry, catalog, self._checked.ranges, self._clock.time
            ),
            repair=repair,
            authority=self.credentials.authority.read_text() if self.credentials is not None else None,
            clock=self._clock.time,
        )
        space = StoreSpace(
            store, registry, catalog, address=f"{self._checked.advertised}:{self.port}", clock=self._clock.time
        )
        each = [kubernetes.controller().run(), kubernetes.keep_registered(), space.run()]
        if not store.shared:
            return [*each, elected.run()]
        identity = f"{socket.gethostname()}_{self._checked.advertised}:{self.port}"
        election = Election(store, identity, uid=self._chance.uid, clock=self._clock)
        return [*each, election.run(elected.run)]


def _is_current(store: Store, account: Account) -> bool:
    record = store.get("serviceaccounts", f"{account.namespace}/{account.name}")
    if record is None:
        return False
    meta = record.document()["metadata"]
    return meta["uid"] == account.uid and not meta.get("deletionTimestamp")


async def _make_room(store: Store) -> None:
    if store.short:
        await store.compact()
