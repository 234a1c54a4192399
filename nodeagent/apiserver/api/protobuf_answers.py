"""Answers in protobuf, for clients that accept nothing else: written at the edge, from the JSON that all others get."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from nodeagent.apiserver.api.replies import Reply
from nodeagent.apiserver.api.request_target import accepts_json, parse_accept
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
"""Answers that are held while they are written."""


def wants_protobuf(accept: str) -> bool:
    """The client accepts protobuf and no JSON. Of both, JSON is answered: it is kept encoded, and costs next to nothing."""
    return not accepts_json(accept) and any(entry.media_type == MEDIA_TYPE for entry in parse_accept(accept))


def asked_in_json(accept: str) -> str:
    """The Accept header of a client that wants the same in JSON. Raises ApiError 406 for a Table, which has no protobuf."""
    header = accept.replace(MEDIA_TYPE, _JSON)
    if any(entry.parameters.get("as") == "Table" for entry in parse_accept(header)):
        raise not_acceptable("a Table is answered in JSON only")
    return header


class ProtobufAnswers:
    """Writes replies and watches. `worker` is for large ones."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._room = asyncio.Semaphore(_AT_A_TIME)

    async def answer(self, answer: Reply | Watch, resource: Resource) -> "Reply | ProtobufWatch":
        """The same in protobuf. Raises ApiError 406 for a list that is too long."""
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
    """A watch whose lines become frames."""

    content_type: Final = f"{MEDIA_TYPE};stream=watch"

    def __init__(self, watch: Watch, structs: Mapping[str, Struct], worker: Worker) -> None:
        self._watch = watch
        self._structs = structs
        self._worker = worker

    async def run(self, stream: Stream) -> None:
        """Ends by returning. Errors of the connection come out of `stream` and go through."""
        await self._watch.run(ProtobufStream(stream, self._structs, self._worker))


class ProtobufStream:
    """Takes the lines of a watch, in pieces, and passes them on as frames."""

    def __init__(self, stream: Stream, structs: Mapping[str, Struct], worker: Worker) -> None:
        self._stream = stream
        self._structs = structs
        self._worker = worker
        self._begun = bytearray()

    def write_now(self, frames: bytes) -> bool:  # noqa: ARG002 - a Stream
        """Never: to write a frame may take a thread."""
        return False

    async def write(self, frames: bytes | memoryview) -> None:
        """Writes the frames that are complete. Raises ConnectionError."""
        self._begun += frames
        *lines, rest = bytes(self._begun).split(b"\n")
        self._begun = bytearray(rest)
        for line in lines:
            await self._stream.write(await self._worker.run(len(line), partial(write_event, self._structs, line)))


def structs_of(resource: Resource) -> Mapping[str, Struct]:
    """The structs of all that a request about this resource may be answered with, by kind."""
    return {**ANSWERS, "TokenRequest": TOKEN_REQUEST, resource.kind: resource.struct}
