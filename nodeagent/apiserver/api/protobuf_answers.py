"""Responses in protobuf, for clients that accept nothing else or want metadata in it: converted from the JSON response."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from nodeagent.apiserver.api import metadata_only
from nodeagent.apiserver.api.replies import Reply
from nodeagent.apiserver.api.request_target import ANSWERED_IN_JSON, accepts_json, parse_accept
from nodeagent.apiserver.api.watches import Stream, Watch
from nodeagent.apiserver.machinery.request_worker import Worker
from nodeagent.apiserver.machinery.schema.protobuf import MEDIA_TYPE
from nodeagent.apiserver.machinery.schema.protobuf_writing import write_event, write_object
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shapes import Struct
from nodeagent.kinds.description.shared import ANSWERS
from nodeagent.kinds.description.status import not_acceptable
from nodeagent.kinds.serviceaccount import TOKEN_REQUEST

_JSON: Final = "application/json"
_LONGEST_BYTES: Final = 16 * 1024 * 1024
_AT_A_TIME: Final = 2
"""How many responses are converted at the same time."""


def wants_protobuf(accept: str) -> bool:
    """Returns whether the client accepts protobuf but not JSON. If it accepts both, it gets JSON, which is stored encoded."""
    return not accepts_json(accept) and any(entry.media_type == MEDIA_TYPE for entry in parse_accept(accept))


def prefers_protobuf(accept: str) -> bool:
    """Returns whether the client names protobuf first and reads only metadata, which is converted for each client in any form.
    Whole objects are sent in JSON to a client that accepts it."""
    for entry in parse_accept(accept):
        if entry.media_type in ANSWERED_IN_JSON:
            return False
        if entry.media_type == MEDIA_TYPE:
            return entry.parameters.get("as") in (metadata_only.KIND, metadata_only.LIST_KIND)
    return False


def json_equivalent(accept: str) -> str:
    """Returns the Accept header that asks for the same in JSON. Raises ApiError 406 for a Table, which has no protobuf form."""
    header = accept.replace(MEDIA_TYPE, _JSON)
    if any(entry.parameters.get("as") == "Table" for entry in parse_accept(header)):
        raise not_acceptable("a Table is answered in JSON only")
    return header


class ProtobufAnswers:
    """Converts replies and watches to protobuf. `worker` converts large ones."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._room = asyncio.Semaphore(_AT_A_TIME)

    async def answer(self, answer: Reply | Watch, resource: Resource) -> "Reply | ProtobufWatch":
        """Returns the same answer in protobuf. Raises ApiError 406 for a list that is too long."""
        if isinstance(answer, Reply):
            return await self._reply(answer, resource)
        return ProtobufWatch(answer, structs_of(resource), self._worker)

    async def _reply(self, reply: Reply, resource: Resource) -> Reply:
        async with self._room:
            pieces, size = [], 0
            for piece in reply.pieces():
                size += len(piece)
                if size > _LONGEST_BYTES:
                    raise not_acceptable("a list this long is answered in JSON, or in pages (limit)")
                pieces.append(piece)
                await asyncio.sleep(0)
            written = await self._worker.run(size, lambda: write_object(structs_of(resource), b"".join(pieces)))
        return replace(reply, body=written, content_type=MEDIA_TYPE, chunks=None)


class ProtobufWatch:
    """A watch whose JSON lines are sent as protobuf frames."""

    content_type: Final = f"{MEDIA_TYPE};stream=watch"

    def __init__(self, watch: Watch, structs: Mapping[str, Struct], worker: Worker) -> None:
        self._watch = watch
        self._structs = structs
        self._worker = worker

    async def run(self, stream: Stream) -> None:
        """Streams until the watch ends. Errors of the connection are raised by `stream` and passed on."""
        await self._watch.run(ProtobufStream(stream, self._structs, self._worker))


class ProtobufStream:
    """Receives the lines of a watch in pieces and forwards them as frames."""

    def __init__(self, stream: Stream, structs: Mapping[str, Struct], worker: Worker) -> None:
        self._stream = stream
        self._structs = structs
        self._worker = worker
        self._incomplete = bytearray()

    def write_now(self, frames: bytes) -> bool:  # noqa: ARG002 - a Stream
        """Returns False always: a frame may have to be converted in a thread."""
        return False

    async def write(self, frames: bytes | memoryview) -> None:
        """Writes the frames of all complete lines. Raises ConnectionError."""
        self._incomplete += frames
        *lines, rest = bytes(self._incomplete).split(b"\n")
        self._incomplete = bytearray(rest)
        for line in lines:
            await self._stream.write(await self._worker.run(len(line), partial(write_event, self._structs, line)))


def structs_of(resource: Resource) -> Mapping[str, Struct]:
    """Returns the structs, by kind, of everything that a request for this resource may be answered with."""
    return {**ANSWERS, "TokenRequest": TOKEN_REQUEST, resource.kind: resource.struct}
