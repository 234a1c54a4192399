"""What the agent and the DNS process say to each other: frames of msgpack on a unix stream socket."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from nodeagent.model.name_counts import NameCounts
from nodeagent.names.zone.service_names import ServiceNames

LARGEST_FRAME = 64 << 20
LARGEST_FROM_PROCESS = 1 << 20
"""The process may have been taken over by what it reads."""
_LENGTH_BYTES = 4
PROCESS_USER = 2_053_053_053
"""Who the process becomes where root starts it. No other process may have the same user, for it could stop this one: so none
that images use (nobody, 65532), and none of the ranges from which users are given (systemd's UIDS-GIDS: 65536 to
1879048191 and 2147352576 on; OpenShift: 1000000000 to 1999999999)."""
SERVICES_IN_ONE = 50
"""Services in one message of a full state, so that taking it in holds back no query for long."""


class Settings(Struct, frozen=True, tag=True):
    """What a DNS process is for all its life. version: of the program, so that an upgrade replaces the process.
    upstreams: ADDRESS or ADDRESS:PORT, none for the node's resolvers. stub_zones: zone and server, written so. listening:
    where queries come in. autopath: whether search paths of known pods are walked for them. log_every: one of so many
    queries is reported. user: the user that the process becomes."""

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
    """First word of the process on a connection, with its sockets attached. settings: None until it was given some.
    answering: whether it has received everything, and reads queries. ending: whether it was asked to end."""

    pid: int
    settings: Settings | None
    answering: bool = False
    ending: bool = False


class Answering(Struct, frozen=True, tag=True):
    """The process has received everything, and reads queries from now on."""


class Begin(Struct, frozen=True, tag=True):
    """A full state follows; till its End the old one is answered from."""


class End(Struct, frozen=True, tag=True):
    """The full state is complete, and what follows are changes."""

    serial: int


class Put(Struct, frozen=True, tag=True):
    """The latest state of some Services. serial: Unix time."""

    services: tuple[ServiceNames, ...]
    serial: int


class Remove(Struct, frozen=True, tag=True):
    """Services that are gone, as namespace and name."""

    services: tuple[tuple[str, str], ...]
    serial: int


class Namespaces(Struct, frozen=True, tag=True):
    """All namespaces there are."""

    names: tuple[str, ...]
    serial: int


class Pods(Struct, frozen=True, tag=True):
    """Some addresses, each with the namespaces of the running pods that have it; none: no pod has it any more."""

    pods: tuple[tuple[str, tuple[str, ...]], ...]
    serial: int


class Served(Struct, frozen=True, tag=True):
    """Whose queries are answered: CIDRs, and addresses of the node."""

    ranges: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class Retire(Struct, frozen=True, tag=True):
    """Finish what was asked and end. replaced: another process reads the sockets already; without one queries come for a
    moment longer."""

    replaced: bool = False


class Replaced(Struct, frozen=True, tag=True):
    """Said to an agent when another one has connected: the process is no longer its own."""


class Ping(Struct, frozen=True, tag=True):
    """A query of the agent's own, to see that the process answers."""

    number: int
    query: bytes


class Pong(Struct, frozen=True, tag=True):
    """The reply to it, empty for silence. reads: how often datagrams have been read from the listening sockets."""

    number: int
    reply: bytes
    reads: int


class Report(Struct, frozen=True, tag=True):
    """What the process counted since it began; sent about once a second when something changed."""

    synced: bool
    counts: NameCounts


class Queries(Struct, frozen=True, tag=True):
    """Lines about a sample of the queries since the last ones."""

    lines: tuple[str, ...]


ToProcess = Settings | Begin | End | Put | Remove | Namespaces | Pods | Served | Retire | Ping
FromProcess = Hello | Answering | Replaced | Report | Queries | Pong
_encoder = msgspec.msgpack.Encoder()


class BadFrame(ValueError):
    """Bytes on the socket that are no message: the other side is another version."""


def encode(message: ToProcess | FromProcess) -> bytes:
    """The message with its length before it."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


class Decoder:
    """Messages from pieces of a stream."""

    def __init__(self, kind: object, largest: int = LARGEST_FRAME) -> None:
        """kind: the union of messages that may come. largest: bytes of one of them."""
        self._largest = largest
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[object]:
        """Every message that is complete with these bytes. Raises BadFrame."""
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
                except msgspec.MsgspecError as error:
                    raise BadFrame(str(error)) from error
                at += _LENGTH_BYTES + size
                yield message
        finally:
            del buffer[:at]
