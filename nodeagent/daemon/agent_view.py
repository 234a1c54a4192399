"""What the agent reports at the admin socket."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from nodeagent import __version__
from nodeagent.config.agent_config import AgentConfig
from nodeagent.daemon.part_options import describe_source, names_at, program_options, wanted_interface
from nodeagent.daemon.service_reasons import facts_of, taken_ends, verdicts_of
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.snapshot import Snapshot
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.names.feed.feed_messages import Settings
from nodeagent.names.feed.feeder import RunningPods
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.engine.sync import Engine
from nodeagent.proxy.observe.admin import admin_documents as documents
from nodeagent.proxy.observe.admin.journal import Journal
from nodeagent.proxy.observe.admin.place import network_namespace
from nodeagent.proxy.observe.status_page.status_answers import BrokenService

_AT_ONCE_BYTES = 65536
"""Bytes that are encoded before other tasks run."""
_MOST_STRAYS = 1000


class AgentView:
    """`server.View` of one agent. `set_dataplane` completes it when the dataplane exists.

    awaited: returns what the agent waits for, in one line; empty for nothing. names: how names are answered; None if
    they are not. namespaces, pods: what is known of them. strays: returns names of Services that only slices mention.
    look_up: asks the source for a Service that is not watched.
    """

    def __init__(
        self,
        config: AgentConfig,
        families: tuple[Family, ...],
        snapshot: Snapshot,
        journal: Journal,
        *,
        awaited: Callable[[], str],
        names: Settings | None,
        namespaces: Callable[[], Collection[str]],
        pods: RunningPods | None,
        strays: Callable[[], Sequence[ObjectKey]],
        look_up: Callable[[ObjectKey], Awaitable[UnwatchedService]],
    ) -> None:
        self._config = config
        self._families = families
        self._snapshot = snapshot
        self._journal = journal
        self._awaited = awaited
        self._names = names
        self._namespaces = namespaces
        self._pods = pods
        self._strays = strays
        self._look_up = look_up
        self._started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._engine: Engine | None = None
        self._tables: tuple[TableDriver, ...] = ()
        self._ownership = ""
        self._program: Mapping[Family, ProgramOptions] = {
            family: program_options(config, family) for family in families
        }

    def set_dataplane(
        self,
        engine: Engine,
        tables: tuple[TableDriver, ...],
        ownership: str,
        program: Mapping[Family, ProgramOptions],
    ) -> None:
        """Sets the engine and the tables, and the options of their rules."""
        self._engine, self._tables, self._ownership = engine, tables, ownership
        self._program = program

    def status(self) -> documents.Status:
        journal = self._journal
        return documents.Status(
            node=self._config.node.name,
            version=__version__,
            pid=os.getpid(),
            network_namespace=network_namespace(),
            source=describe_source(self._config),
            families=tuple(family.value for family in self._families),
            ownership=self._ownership,
            ready=journal.programmed,
            awaited="" if journal.programmed else self._awaited(),
            services=journal.services,
            problems=len(journal.problems),
            started=self._started,
            passes=journal.passes,
            last_pass=journal.last_pass,
        )

    def problems(self) -> tuple[documents.KnownProblem, ...]:
        return self._journal.problems

    def transactions(self) -> tuple[documents.Transaction, ...]:
        return self._journal.transactions

    def belief(self) -> tuple[documents.TableBelief, ...]:
        return tuple(_belief(table) for table in self._tables)

    async def reasons(self, names: Collection[str]) -> dict[str, BrokenService]:
        """Returns what `nodeagent explain` reports on those of these Services that are not healthy, by
        `namespace/name`. It runs in a thread, because they may have thousands of endpoints."""
        engine = self._engine
        if engine is None or engine.context is None:
            return {}
        facts = facts_of(
            [ObjectKey(*name.split("/", 1)) for name in names if "/" in name],
            self._snapshot,
            engine.context,
            engine.node,
            engine.states,
            [Problem(one.subject, one.reason, one.detail) for one in self._journal.problems],
            strays=self._strays()[:_MOST_STRAYS],
            names_at=names_at(self._config),
        )
        return await asyncio.to_thread(verdicts_of, facts)

    def names(self) -> list[str]:
        return sorted(map(str, self._snapshot.services))

    def nodes(self) -> list[str]:
        """Returns the nodes that have endpoints, and this one."""
        snapshot = self._snapshot
        slices = (one for key in snapshot.services for one in snapshot.slices_of(key))
        found = {endpoint.node_name for one in slices for endpoint in one.endpoints or () if endpoint.node_name}
        return sorted(found | {self._config.node.name})

    def cluster_dns(self, pod: str | None) -> documents.ClusterDns:
        """Returns the state of cluster DNS. pod: an address whose pods' namespaces are included, or None."""
        names = self._names
        if names is None:
            return documents.ClusterDns(enabled=False)
        running = () if pod is None or self._pods is None else ((pod, self._pods.namespaces_at(pod)),)
        return documents.ClusterDns(
            enabled=True,
            zones=names.zones,
            ttl=names.ttl,
            pods=names.pods,
            server=names.server,
            addresses=tuple(address for address, _ in names.listening),
            namespaces=tuple(sorted(self._namespaces())),
            running=running,
            upstreams=names.upstreams,
            stub_zones=names.stub_zones,
        )

    def states(self) -> Mapping[ObjectKey, ServiceState]:
        """Returns the translation's result for every Service; empty before the first pass."""
        return {} if self._engine is None else self._engine.states

    async def world(self, only: ObjectKey | None) -> AsyncIterator[bytes]:
        """Yields pieces of bounded size; changes during this may be included or not, but each Service is of one moment."""
        encode = msgspec.json.Encoder(enc_hook=list).encode  # packed values are written as lists
        unwatched = None
        if only is not None and only not in self._snapshot.services:
            unwatched = await self._look_up(only)
        yield encode(self._head(only, unwatched)) + b"\n"
        states = self.states()
        keys = [only] if only is not None else list({**dict.fromkeys(self._snapshot.services), **dict.fromkeys(states)})
        pending = bytearray()
        for key in keys:
            service = self._snapshot.services.get(key)
            state = states.get(key)
            if service is None and state is None:
                continue
            slices = tuple(self._snapshot.slices_of(key))
            pending += encode(documents.WorldService(key=key, service=service, slices=slices, state=state)) + b"\n"
            if len(pending) > _AT_ONCE_BYTES:
                yield bytes(pending)
                pending.clear()
                await asyncio.sleep(0)
        if pending:
            yield bytes(pending)

    def _head(self, only: ObjectKey | None, unwatched: UnwatchedService | None) -> documents.WorldHead:
        engine = self._engine
        slices = () if only is None else self._snapshot.slices_of(only)
        own = () if engine is None or engine.context is None else engine.context.node_addresses
        program: Mapping[str, object] = {family.value: options for family, options in self._program.items()}
        return documents.WorldHead(
            status=self.status(),
            context=msgspec.Raw(msgspec.json.encode(None if engine is None else engine.context)),
            node=engine.node if engine is not None else NodeState(),
            program=msgspec.Raw(msgspec.json.encode(program)),
            interface=wanted_interface(self._config),
            own_addresses=tuple(sorted(engine.own_addresses)) if engine is not None else (),
            names_at=names_at(self._config),
            strays=() if slices else tuple(self._strays()[:_MOST_STRAYS]),
            taken=None if only is None or engine is None else taken_ends(slices, engine.states, own),
            unwatched=unwatched,
        )


def _belief(table: TableDriver) -> documents.TableBelief:
    belief = table.belief
    if belief is None:
        return documents.TableBelief(table.family.value, known=False)
    return documents.TableBelief(
        table.family.value,
        known=True,
        usable=belief.usable,
        claimed=belief.claimed,
        program_right=belief.program_right,
        elements={name: len(elements) for name, elements in belief.image.items()},
    )
