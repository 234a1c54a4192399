"""Agents with a planted defect: ``python -m tests.soak.planted NAME run …``. Each must be found by its law.

The defect is put into the classes of this process before the agent starts; the product does not know of it.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from nodeagent.__main__ import main
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice
from nodeagent.names.feed.feeder import Feeder
from nodeagent.proxy.dataplane.driver.affinity_purge import AffinityPurge
from nodeagent.proxy.engine.sync import Engine
from nodeagent.proxy.source.object_store import ClusterStore

OLD_SECONDS = 60.0
DESCRIPTORS_EACH = 3


def program_of(name: str) -> tuple[str, ...]:
    """Returns the command that starts agents with this defect, without their arguments."""
    return (sys.executable, "-m", "tests.soak.planted", name)


def ignore_deletes() -> None:
    """Endpoints that leave a slice, or are no longer ready, stay."""
    update = ClusterStore._update_slices
    seen: dict[ObjectKey, EndpointSlice] = {}

    def keep(self: ClusterStore, puts: Mapping[ObjectKey, EndpointSlice], deletes: Iterable[ObjectKey]) -> None:
        for key, new in puts.items():
            old = {one.addresses: one for one in seen[key].endpoints or ()} if key in seen else {}
            fresh = {one.addresses: one for one in new.endpoints or ()}
            seen[key] = replace(new, endpoints=tuple((fresh | old).values()))
        update(self, {key: seen[key] for key in puts}, deletes)

    ClusterStore._update_slices = keep  # type: ignore[method-assign]


def flush_at_start() -> None:
    """The tables are deleted when the agent starts, before it knows what to put there."""
    for family in ("ip", "ip6"):
        subprocess.run(["nft", "delete", "table", family, "nodeagent"], check=False, stderr=subprocess.DEVNULL)


def keep_affinity() -> None:
    """Clients are remembered when their endpoint leaves."""

    async def nothing(self: AffinityPurge) -> None:
        await asyncio.Event().wait()

    AffinityPurge.run = nothing  # type: ignore[method-assign]


def answer_old_names() -> None:
    """DNS hears of changes a minute later."""
    passed = Feeder.passed

    def late(self: Feeder, keys: Collection[ObjectKey] | None) -> None:
        if keys is None:
            passed(self, keys)
        else:
            asyncio.get_running_loop().call_later(OLD_SECONDS, passed, self, keys)

    Feeder.passed = late  # type: ignore[method-assign]


def after_each_pass(spoil: Callable[[], object]) -> None:
    """Something else happens after each pass of the engine."""
    run_pass = Engine._run_pass

    async def spoiled(self: Engine, *arguments: Any, **options: Any) -> Any:
        try:
            return await run_pass(self, *arguments, **options)
        finally:
            spoil()

    Engine._run_pass = spoiled  # type: ignore[method-assign]


def lose_descriptors() -> None:
    """Each pass leaves descriptors open."""

    def leave() -> None:
        with suppress(OSError):
            for _ in range(DESCRIPTORS_EACH):
                os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    after_each_pass(leave)


def forget_connections() -> None:
    """Each pass ends every tracked connection, also those of TCP."""
    after_each_pass(lambda: subprocess.run(["conntrack", "-F"], check=False, stderr=subprocess.DEVNULL))


BUGS: dict[str, tuple[str, Callable[[], None]]] = {
    "ignores-deletes": ("reaches-valid", ignore_deletes),
    "flushes-at-start": ("answered", flush_at_start),
    "keeps-affinity": ("reaches-valid", keep_affinity),
    "old-names": ("fresh-names", answer_old_names),
    "loses-descriptors": ("came-back", lose_descriptors),
    "forgets-connections": ("established", forget_connections),
}
"""Name → the law that must find it, and what plants it."""

if __name__ == "__main__":
    BUGS[sys.argv.pop(1)][1]()
    main()
