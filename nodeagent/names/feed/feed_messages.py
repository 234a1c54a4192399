"""The messages between the agent and the DNS process: msgpack with a length prefix, on a unix stream socket."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from nodeagent.model.name_counts import NameCounts
from nodeagent.names.zone.service_names import ServiceNames
from nodeagent.wire.unreadable import UNREADABLE

LARGEST_FRAME = 64 << 20
LARGEST_FROM_PROCESS = 1 << 20
"""Bytes of one message from the process. It is bounded because hostile queries may have taken the process over."""
_LENGTH_BYTES = 4
PROCESS_USER = 2_053_053_053
"""The user id that the process takes when root starts it. No other process may have it, because processes of one user
can stop each other. So it is not an id that images use (nobody, 65532), and in no range from which ids are given out
(systemd's UIDS-GIDS: 65536 to 1879048191 and from 2147352576; OpenShift: 1000000000 to 1999999999)."""
SERVICES_IN_ONE = 50
"""Services in one message of a full state: few enough that applying it does not delay queries."""


class Settings(Struct, frozen=True, tag=True):
    """The settings of a DNS process; they never change during its life.

    version: of the program, so that an upgrade replaces the process. ttl: seconds. upstreams: ADDRESS or ADDRESS:PORT;
    empty for the node's resolvers. stub_zones: pairs of zone and server. listening: where queries are received.
    autopath: whether search paths of known pods are walked. log_every: one of this many queries is logged; 0 for none.
    user: id of the process.
    """

    version: str = ""
    zones: tuple[str, ...] = ("cluster.local",)
    ttl: int = 30
    pods: str = "insecure"
    server: tuple[str, str] = ("kube-system", "kube-dns")
    upstreams: tuple[str, ...] = ()
    stub_zones: tuple[tuple[str, str], ...] = ()
    listening: tuple[tuple[str, int], ...] = ()
    autopath: bool = False
    log_every: int = 0
    user: int = PROCESS_USER


class Hello(Struct, frozen=True, tag=True):
    """First message of the process on a connection, with its sockets attached. settings: None before it received any.
    answering: whether it has the full state and reads queries. ending: whether it was asked to end."""

    pid: int
    settings: Settings | None
    answering: bool = False
    ending: bool = False


class Answering(Struct, frozen=True, tag=True):
    """The process has the full state, and reads queries from now on."""


class Begin(Struct, frozen=True, tag=True):
    """A full state follows; until its End the process answers from the old one."""


class End(Struct, frozen=True, tag=True):
    """The full state is complete; changes follow."""

    serial: int


class Put(Struct, frozen=True, tag=True):
    """The latest state of some Services. serial: Unix time."""

    services: tuple[ServiceNames, ...]
    serial: int


class Remove(Struct, frozen=True, tag=True):
    """Services that were deleted, as (namespace, name)."""

    services: tuple[tuple[str, str], ...]
    serial: int


class Namespaces(Struct, frozen=True, tag=True):
    """The names of all namespaces."""

    names: tuple[str, ...]
    serial: int


class Pods(Struct, frozen=True, tag=True):
    """Addresses, each with the namespaces of the running pods that have it; an empty tuple: no pod has it any more."""

    pods: tuple[tuple[str, tuple[str, ...]], ...]
    serial: int


class Served(Struct, frozen=True, tag=True):
    """Whose queries are answered: CIDRs, and addresses of the node."""

    ranges: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class Retire(Struct, frozen=True, tag=True):
    """Asks the process to answer what it has received, and to end. replaced: another process already reads the sockets;
    otherwise queries still arrive for a moment."""

    replaced: bool = False


class Replaced(Struct, frozen=True, tag=True):
    """Sent to an agent when another agent has connected: it no longer controls the process."""


class Ping(Struct, frozen=True, tag=True):
    """A query of the agent itself, to check that the process answers."""

    number: int
    query: bytes


class Pong(Struct, frozen=True, tag=True):
    """The response to a Ping; `reply` is empty for no response. reads: how often datagrams were read from the sockets."""

    number: int
    reply: bytes
    reads: int


class Report(Struct, frozen=True, tag=True):
    """Counters since the process started; sent about once a second if something changed."""

    synced: bool
    counts: NameCounts


class Queries(Struct, frozen=True, tag=True):
    """Log lines for a sample of the queries since the last such message."""

    lines: tuple[str, ...]


ToProcess = Settings | Begin | End | Put | Remove | Namespaces | Pods | Served | Retire | Ping
FromProcess = Hello | Answering | Replaced | Report | Queries | Pong
_encoder = msgspec.msgpack.Encoder()


class BadFrame(ValueError):
    """Bytes on the socket that are no message: the other side has another version."""


def encode(message: ToProcess | FromProcess) -> bytes:
    """Returns the message with its length before it."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


class Decoder:
    """Decodes messages from pieces of a stream."""

    def __init__(self, kind: object, largest: int = LARGEST_FRAME) -> None:
        """kind: the union of the allowed messages. largest: bytes of one message."""
        self._largest = largest
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[object]:
        """Yields every message that is complete with these bytes. Raises BadFrame."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _LENGTH_BYTES:
                size = int.from_bytes(buffer[at : at + _LENGTH_BYTES], "big")
                if size > self._largest:
                    raise BadFrame(f"a frame of {size} bytes")
                if len(buffer) - at - _LENGTH_BYTES < size:
                    break
                try:
                    message = self._decoder.decode(memoryview(buffer)[at + _LENGTH_BYTES : at + _LENGTH_BYTES + size])
                except UNREADABLE as error:
                    raise BadFrame(str(error)) from error
                at += _LENGTH_BYTES + size
                yield message
        finally:
            del buffer[:at]
