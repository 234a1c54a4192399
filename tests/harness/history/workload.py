"""Clients that write, read and watch random objects at several servers while those are killed, and all that they noted down.

What each does, and what happens to whom, is drawn from the seed; only how it interleaves is the machine's.
"""

import asyncio
import json
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import aiohttp

from tests.harness.history.records import Fault, History, Increment, Read, Seen, Stream, Write
from tests.harness.history.truth import PATCHED, PUT, value_of

NAMESPACE = "history"
COLLECTIONS = ("configmaps", "services")
COUNTED, COUNTER = "configmaps", "counter"
ROOT = f"/api/v1/namespaces/{NAMESPACE}"
REQUEST_SECONDS = 10.0
DEADLINE_SECONDS = 60.0
_VERBS = {"create": 4, "update": 4, "patch": 4, "delete": 2, "get": 2, "list": 1, "glance": 1}
_GONE = 410


class Server(Protocol):
    """One that can be reached, or not. incarnation: how often it was started."""

    name: str
    incarnation: int

    @property
    def url(self) -> str | None:
        """None while it is not ready."""
        ...


Harm = Callable[[random.Random], Awaitable[Fault]]
"""Does something to somebody, puts it right, and says what it was."""


@dataclass
class Plan:
    """seconds: how long it goes on, at least. every: about how many between harms. enough: writes to each collection that
    must have succeeded before the next harm, and before the end. objects: names of each collection. counting: further
    clients, that raise the same counter by one with equal bytes."""

    seed: int
    seconds: float
    clients: int = 8
    watchers: int = 2
    every: float = 1.5
    enough: int = 3
    objects: int = 5
    counting: int = 6


@dataclass
class Known:
    """What one client knows of one object."""

    revision: int
    document: dict[str, Any]


@dataclass
class Run:
    """A workload under way."""

    plan: Plan
    servers: Sequence[Server]
    session: aiohttp.ClientSession
    histories: dict[str, History] = field(default_factory=lambda: {name: History() for name in COLLECTIONS})
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def pick(self, chance: random.Random) -> Server:
        return self.servers[chance.randrange(len(self.servers))]


async def play(plan: Plan, servers: Sequence[Server], harms: Sequence[Harm]) -> dict[str, History]:
    """The histories of the collections, without facts."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        run = Run(plan, servers, session)
        await _prepare(run)
        async with asyncio.TaskGroup() as group:
            watching = [
                group.create_task(_watch(run, collection, f"watcher-{n}"))
                for collection in COLLECTIONS
                for n in range(plan.watchers)
            ]
            clients = [group.create_task(_client(run, f"client-{n}")) for n in range(plan.clients)]
            clients += [group.create_task(_count(run, f"counting-{n}")) for n in range(plan.counting)]
            await _harm(run, harms)
            run.over.set()
            await asyncio.wait(clients)
            await _until(lambda: all(server.url for server in servers))
            await _finish(run)
            for task in watching:
                task.cancel()
        return run.histories


async def _prepare(run: Run) -> None:
    await _until(lambda: all(server.url for server in run.servers))
    url = f"{run.servers[0].url}/api/v1/namespaces"
    async with run.session.post(url, json={"metadata": {"name": NAMESPACE}}) as response:
        assert response.status < 300, await response.text()
    counter = {"metadata": {"name": COUNTER, "annotations": {PUT: "0"}}}
    async with run.session.post(f"{run.servers[0].url}{ROOT}/{COUNTED}", json=counter) as response:
        assert response.status < 300, await response.text()
    for server in run.servers:
        for collection in COLLECTIONS:
            await _listed(run, server, collection)


async def _harm(run: Run, harms: Sequence[Harm]) -> None:
    chance = random.Random(f"{run.plan.seed} harm")
    end = run.now() + run.plan.seconds
    mark = 0.0
    while harms and run.now() < end - run.plan.every:
        await asyncio.sleep(run.plan.every * (0.5 + chance.random()))
        await _until(partial(_enough, run, mark))
        fault = await harms[chance.randrange(len(harms))](chance)
        mark = fault.began
        for history in run.histories.values():
            history.faults.append(fault)
    await asyncio.sleep(max(0.0, end - run.now()))
    await _until(partial(_enough, run, mark))


def _enough(run: Run, mark: float) -> bool:
    """So many writes to each collection have succeeded since then."""
    return all(
        sum(write.done and write.began >= mark for write in history.writes) >= run.plan.enough
        for history in run.histories.values()
    )


async def _finish(run: Run) -> None:
    """What each server shows in the end, when it has seen what any of them has, and watchers that have heard all."""
    for collection, history in run.histories.items():
        latest = max([(await _listed(run, server, collection))[0] for server in run.servers])
        for server in run.servers:
            history.finals[server.name] = (await _listed(run, server, collection, latest))[1]
        await _until(partial(_all_heard, history))


def _all_heard(history: History) -> bool:
    """Whether the last stream of each watcher reaches to what the end showed."""
    latest = max((revision for final in history.finals.values() for revision, _ in final.values()), default=0)
    return all(_position(stream) >= latest for stream in {one.watcher: one for one in history.streams}.values())


def _position(stream: Stream) -> int:
    return max([stream.since, *(event.revision for event in stream.events)])


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event of its own
            await asyncio.sleep(0.01)


async def _list(run: Run, server: Server, collection: str, query: str = "") -> tuple[int, dict[str, Any]] | None:
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            async with run.session.get(f"{server.url}{ROOT}/{collection}{query}") as response:
                document = json.loads(await response.read())
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None
    if response.status >= 300:
        return None
    items = {
        item["metadata"]["name"]: (int(item["metadata"]["resourceVersion"]), value_of(item))
        for item in document["items"]
    }
    return int(document["metadata"]["resourceVersion"]), items


async def _listed(run: Run, server: Server, collection: str, least: int = 0) -> tuple[int, dict[str, Any]]:
    """As soon as it answers, with this revision or a later one."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            found = await _list(run, server, collection)
            if found is not None and found[0] >= least:
                return found
            await asyncio.sleep(0.05)


async def _client(run: Run, name: str) -> None:
    chance = random.Random(f"{run.plan.seed} {name}")
    known: dict[tuple[str, str], Known] = {}
    number = 0
    while not run.over.is_set():
        number += 1
        collection = COLLECTIONS[chance.randrange(len(COLLECTIONS))]
        key = f"object-{chance.randrange(run.plan.objects)}"
        verb = chance.choices(list(_VERBS), list(_VERBS.values()))[0]
        server = run.pick(chance)
        if server.url is None:
            await asyncio.sleep(0.02)
            continue
        if verb in ("get", "list", "glance"):
            await _read(run, name, server, collection, key, verb, known)
        else:
            await _write(run, name, server, collection, key, verb, f"{name}/{number}", known)


async def _count(run: Run, name: str) -> None:
    """Reads the counter and writes it, one higher, from the revision it has read. Nothing in that says who wrote it."""
    chance = random.Random(f"{run.plan.seed} {name}")
    path = f"{ROOT}/{COUNTED}/{COUNTER}"
    while not run.over.is_set():
        server = run.pick(chance)
        await asyncio.sleep(0.005)
        if server.url is None:
            continue
        status, document = await _request(run, "GET", f"{server.url}{path}")
        if status != 200 or document is None:
            continue
        meta = document["metadata"]
        count = int(meta["annotations"][PUT]) + 1
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": {PUT: str(count)}}}
        server = run.pick(chance)
        if server.url is None:
            continue
        # A PUT might be sent twice.
        status, answer = await _request(run, "PATCH", f"{server.url}{path}", body, "application/merge-patch+json")
        if status == 0:
            continue
        status = None if status is not None and status >= 500 else status
        revision = int(answer["metadata"]["resourceVersion"]) if status == 200 and answer is not None else 0
        where = f"{server.name}#{server.incarnation}"
        made = Increment(name, where, COUNTER, int(meta["resourceVersion"]), count, status, revision)
        run.histories[COUNTED].increments.append(made)


async def _read(
    run: Run, name: str, server: Server, collection: str, key: str, verb: str, known: dict[tuple[str, str], Known]
) -> None:
    where = f"{server.name}#{server.incarnation}"
    began = run.now()
    history = run.histories[collection]
    if verb != "get":
        found = await _list(run, server, collection, "?resourceVersion=0" if verb == "glance" else "")
        if found is not None:
            history.reads.append(Read(name, where, began, run.now(), verb == "list", *found))
        return
    status, document = await _request(run, "GET", f"{server.url}{ROOT}/{collection}/{key}")
    if status not in (200, 404) or document is None:
        return
    items = {}
    if status == 200:
        revision = int(document["metadata"]["resourceVersion"])
        items[key] = (revision, value_of(document))
        known[(collection, key)] = Known(revision, document)
    else:
        known.pop((collection, key), None)
    history.reads.append(Read(name, where, began, run.now(), True, 0, items, key))


async def _write(
    run: Run,
    name: str,
    server: Server,
    collection: str,
    key: str,
    verb: str,
    text: str,
    known: dict[tuple[str, str], Known],
) -> None:
    held = known.get((collection, key))
    if verb in ("update", "delete") and held is None:
        return
    url = f"{server.url}{ROOT}/{collection}"
    expected = held.revision if held is not None and verb in ("update", "delete") else None
    method, body, content = _body(collection, key, verb, text, held)
    began = run.now()
    status, answer = await _request(run, method, url if verb == "create" else f"{url}/{key}", body, content)
    if status == 0:
        await asyncio.sleep(0.02)
        return
    done = status is not None and status < 300
    revision, value = 0, None
    if done and answer is not None and verb != "delete":
        revision, value = int(answer["metadata"]["resourceVersion"]), value_of(answer)
        known[(collection, key)] = Known(revision, answer)
    else:
        known.pop((collection, key), None)
    # 5xx: the server does not know either.
    status = None if status is not None and status >= 500 else status
    where = f"{server.name}#{server.incarnation}"
    write = Write(
        name, where, verb, key, text, began, run.now() if done else math.inf, expected, status, revision, value
    )
    run.histories[collection].writes.append(write)


def _body(collection: str, key: str, verb: str, text: str, held: Known | None) -> tuple[str, dict[str, Any], str]:
    if verb == "create":
        spec = {"spec": {"type": "NodePort", "ports": [{"port": 80}]}} if collection == "services" else {}
        return "POST", {"metadata": {"name": key, "annotations": {PUT: text}}, **spec}, "application/json"
    if verb == "patch":
        return "PATCH", {"metadata": {"annotations": {PATCHED: text}}}, "application/merge-patch+json"
    assert held is not None
    if verb == "delete":
        return "DELETE", {"preconditions": {"resourceVersion": str(held.revision)}}, "application/json"
    document = json.loads(json.dumps(held.document))
    document["metadata"].setdefault("annotations", {})[PUT] = text
    return "PUT", document, "application/json"


async def _request(
    run: Run, method: str, url: str, body: dict[str, Any] | None = None, content: str = "application/json"
) -> tuple[int | None, dict[str, Any] | None]:
    """The status and what it came with; 0 where the request never left, None where nobody knows what became of it.

    What may be repeated aiohttp asks once more by itself where a kept connection broke: that the second one found nobody
    says nothing of the first.
    """
    data = json.dumps(body).encode() if body is not None else None
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            async with run.session.request(method, url, data=data, headers={"Content-Type": content}) as response:
                return response.status, json.loads(await response.read())
    except aiohttp.ClientConnectorError:
        return (0 if method in ("POST", "PATCH") else None), None
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return None, None


async def _watch(run: Run, collection: str, name: str) -> None:
    """Never ends: on to the next server from the last revision, and a list where that is gone."""
    chance = random.Random(f"{run.plan.seed} {collection} {name}")
    stream: Stream | None = None
    while True:
        server = run.pick(chance)
        if server.url is None:
            await asyncio.sleep(0.02)
            continue
        if stream is None:
            found = await _list(run, server, collection)
            if found is None:
                continue
            stream = Stream(f"{name} of {collection}", found[0])
            run.histories[collection].streams.append(stream)
        if await _listen(run, server, collection, stream, chance):
            stream = None


async def _listen(run: Run, server: Server, collection: str, stream: Stream, chance: random.Random) -> bool:
    """One connection; whether the history from there on is gone."""
    query = (
        f"?watch=1&allowWatchBookmarks=true&resourceVersion={_position(stream)}&timeoutSeconds={chance.randrange(1, 6)}"
    )
    try:
        async with run.session.get(f"{server.url}{ROOT}/{collection}{query}") as response:
            if response.status != 200:
                await asyncio.sleep(0.05)
                return response.status == _GONE
            async for line in response.content:
                event = json.loads(line)
                code = event["object"].get("code") if event["type"] == "ERROR" else None
                if code is not None:
                    return bool(code == _GONE)
                document = event["object"]
                revision = int(document["metadata"]["resourceVersion"])
                if event["type"] == "BOOKMARK":
                    stream.events.append(Seen("BOOKMARK", revision))
                else:
                    key = document["metadata"]["name"]
                    stream.events.append(Seen(event["type"], revision, key, value_of(document)))
    except (aiohttp.ClientError, OSError, ValueError):
        await asyncio.sleep(0.02)
    return False
