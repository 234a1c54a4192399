"""What the agent tells of itself at the admin socket."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime

import msgspec

from nodeagent import __version__
from nodeagent.config import AgentConfig
from nodeagent.dataplane.nft.driver import TableDriver
from nodeagent.engine.sync import Engine
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState
from nodeagent.model.names import ObjectKey
from nodeagent.model.snapshot import Snapshot
from nodeagent.observe.admin.documents import (
    KnownProblem,
    Status,
    TableBelief,
    Transaction,
    WorldHead,
    WorldService,
)
from nodeagent.observe.admin.journal import Journal
from nodeagent.observe.admin.place import network_namespace
from nodeagent.part_options import describe_source, program_options

_AT_ONCE_BYTES = 65536
"""So much is encoded before others have their turn."""


class AgentView:
    """`server.View` of one agent. `working` completes it when there is something to program with.

    awaited: what the agent waits for, in one line; empty when for nothing.
    """

    def __init__(
        self,
        config: AgentConfig,
        families: tuple[Family, ...],
        snapshot: Snapshot,
        journal: Journal,
        *,
        awaited: Callable[[], str],
    ) -> None:
        self._config = config
        self._families = families
        self._snapshot = snapshot
        self._journal = journal
        self._awaited = awaited
        self._started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._engine: Engine | None = None
        self._tables: tuple[TableDriver, ...] = ()
        self._ownership = ""

    def working(self, engine: Engine, tables: tuple[TableDriver, ...], ownership: str) -> None:
        """The engine and the tables that there are from now on."""
        self._engine, self._tables, self._ownership = engine, tables, ownership

    def status(self) -> Status:
        journal = self._journal
        return Status(
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

    def problems(self) -> tuple[KnownProblem, ...]:
        return self._journal.problems

    def transactions(self) -> tuple[Transaction, ...]:
        return self._journal.transactions

    def belief(self) -> tuple[TableBelief, ...]:
        return tuple(_belief(table) for table in self._tables)

    def names(self) -> list[str]:
        return sorted(map(str, self._snapshot.services))

    async def world(self, only: ObjectKey | None) -> AsyncIterator[bytes]:
        """In pieces of bounded size; what changes meanwhile may be in it or not, but each Service is of one moment."""
        encode = msgspec.json.Encoder().encode
        yield encode(self._head()) + b"\n"
        states = {} if self._engine is None else self._engine.states
        keys = [only] if only is not None else list({**dict.fromkeys(self._snapshot.services), **dict.fromkeys(states)})
        pending = bytearray()
        for key in keys:
            service = self._snapshot.services.get(key)
            state = states.get(key)
            if service is None and state is None:
                continue
            slices = tuple(self._snapshot.slices_of(key))
            pending += encode(WorldService(key=key, service=service, slices=slices, state=state)) + b"\n"
            if len(pending) > _AT_ONCE_BYTES:
                yield bytes(pending)
                pending.clear()
                await asyncio.sleep(0)
        if pending:
            yield bytes(pending)

    def _head(self) -> WorldHead:
        engine = self._engine
        program: Mapping[str, object] = {
            family.value: program_options(self._config, family) for family in self._families
        }
        return WorldHead(
            status=self.status(),
            context=msgspec.Raw(msgspec.json.encode(None if engine is None else engine.context)),
            node=engine.node if engine is not None else NodeState(),
            program=msgspec.Raw(msgspec.json.encode(program)),
        )


def _belief(table: TableDriver) -> TableBelief:
    belief = table.belief
    if belief is None:
        return TableBelief(table.family.value, known=False)
    return TableBelief(
        table.family.value,
        known=True,
        usable=belief.usable,
        claimed=belief.claimed,
        program_right=belief.program_right,
        elements={name: len(elements) for name, elements in belief.image.items()},
    )
