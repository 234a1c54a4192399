"""The messages of etcd's API that are used here, in protobuf (api/etcdserverpb/rpc.proto, api/mvccpb/kv.proto). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from nodeagent.wire.protobuf import as_bytes, as_int, as_signed, bytes_field, number_field, read_fields

VERSION, MODIFIED = 0, 2
"""What of a key is compared in a transaction: how often it was written, or the revision it was last written at."""


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    """A key as it is stored; `version` counts its writes since it was created."""

    key: bytes = b""
    mod_revision: int = 0
    version: int = 0
    value: bytes = b""
    lease: int = 0


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One change; of a deletion `kv` has key and revision only."""

    deleted: bool
    kv: KeyValue


@dataclass(frozen=True, slots=True)
class Header:
    """Who answered, and the latest revision it knows."""

    cluster: int = 0
    member: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True)
class RangeReply:
    """Keys in order; `more`: there are further ones."""

    header: Header
    kvs: Sequence[KeyValue]
    more: bool


@dataclass(frozen=True, slots=True)
class TxnReply:
    """`ranges` are the answers of the operations that were reads, in order."""

    header: Header
    succeeded: bool
    ranges: Sequence[RangeReply]


@dataclass(frozen=True, slots=True)
class WatchReply:
    """What a watch says at a time. Without events, created or canceled it only tells how far it has come."""

    header: Header
    created: bool
    canceled: bool
    compact_revision: int
    reason: str
    events: Sequence[WatchEvent]


@dataclass(frozen=True, slots=True)
class StatusReply:
    """One member: its release, and whether it knows a leader."""

    header: Header
    version: str
    leader: int


def _number(field: int, value: int) -> bytes:
    return number_field(field, value) if value else b""


def _data(field: int, value: bytes, *, always: bool = False) -> bytes:
    return bytes_field(field, value) if value or always else b""


def range_request(
    key: bytes,
    end: bytes = b"",
    *,
    limit: int = 0,
    revision: int = 0,
    keys_only: bool = False,
    serializable: bool = False,
) -> bytes:
    """Reads a key, or those from `key` up to, not including, `end`; at the latest revision unless one is given."""
    parts = (_data(1, key), _data(2, end), _number(3, limit), _number(4, revision))
    return b"".join((*parts, _number(7, serializable), _number(8, keys_only)))


def put_request(key: bytes, value: bytes, lease: int = 0) -> bytes:
    """Writes a key."""
    return _data(1, key) + _data(2, value) + _number(3, lease)


def delete_request(key: bytes, end: bytes = b"") -> bytes:
    """Removes a key, or a range of them."""
    return _data(1, key) + _data(2, end)


def compare(key: bytes, target: int, number: int) -> bytes:
    """The key's number of that kind is `number`; 0: the key is not there."""
    # 0 is said, too: the field is one of several, and says which.
    field = {VERSION: 4, MODIFIED: 6}[target]
    return _number(2, target) + _data(3, key) + number_field(field, number)


def as_range(request: bytes) -> bytes:
    """A read, as an operation of a transaction."""
    return _data(1, request, always=True)


def as_put(request: bytes) -> bytes:
    """A write, as an operation of a transaction."""
    return _data(2, request, always=True)


def as_delete(request: bytes) -> bytes:
    """A removal, as an operation of a transaction."""
    return _data(3, request, always=True)


def txn_request(compares: Sequence[bytes], success: Sequence[bytes], failure: Sequence[bytes] = ()) -> bytes:
    """If all compares hold then the first operations, else the second."""
    parts = [_data(1, one, always=True) for one in compares]
    parts += [_data(2, one, always=True) for one in success]
    return b"".join([*parts, *(_data(3, one, always=True) for one in failure)])


def compaction_request(revision: int) -> bytes:
    """Forgets what was superseded or deleted at or before a revision."""
    return _number(1, revision)


def watch_create(key: bytes, end: bytes, start: int) -> bytes:
    """Tells every change of a range from revision `start` on."""
    return _data(1, _data(1, key) + _data(2, end) + _number(3, start), always=True)


def watch_progress() -> bytes:
    """Asks a watch how far it has come."""
    return _data(3, b"", always=True)


def lease_grant(seconds: int) -> bytes:
    """A new lease, with a number of etcd's choice."""
    return _number(1, seconds)


def lease_number(number: int) -> bytes:
    """Renews or revokes a lease."""
    return _number(1, number)


def _all_fields(data: bytes) -> dict[int, list[int | bytes]]:
    """All values of each field, in the order they came."""
    found: dict[int, list[int | bytes]] = {}
    for number, value in read_fields(data):
        found.setdefault(number, []).append(value)
    return found


def _last(found: dict[int, list[int | bytes]], number: int) -> int | bytes:
    """A field of which the last value counts; 0 where it is missing."""
    return found[number][-1] if number in found else 0


def _header(found: dict[int, list[int | bytes]]) -> Header:
    return read_header(as_bytes(found[1][-1])) if 1 in found else Header()


def read_header(data: bytes) -> Header:
    """A ResponseHeader."""
    found = dict(read_fields(data))
    return Header(as_int(found.get(1, 0)), as_int(found.get(2, 0)), as_signed(found.get(3, 0)))


def read_any_header(data: bytes) -> Header:
    """The header of an answer of which nothing else matters."""
    return _header(_all_fields(data))


def read_key_value(data: bytes) -> KeyValue:
    """A KeyValue."""
    found = dict(read_fields(data))
    return KeyValue(
        as_bytes(found.get(1, b"")),
        as_signed(found.get(3, 0)),
        as_signed(found.get(4, 0)),
        as_bytes(found.get(5, b"")),
        as_signed(found.get(6, 0)),
    )


def read_range(data: bytes) -> RangeReply:
    """A RangeResponse."""
    found = _all_fields(data)
    kvs = [read_key_value(as_bytes(one)) for one in found.get(2, ())]
    return RangeReply(_header(found), kvs, bool(_last(found, 3)))


def read_txn(data: bytes) -> TxnReply:
    """A TxnResponse."""
    found = _all_fields(data)
    ranges = [read_range(as_bytes(read)) for one in found.get(3, ()) for read in _all_fields(as_bytes(one)).get(1, ())]
    return TxnReply(_header(found), bool(_last(found, 2)), ranges)


def read_watch(data: bytes) -> WatchReply:
    """A WatchResponse."""
    found = _all_fields(data)
    reason = b"".join(as_bytes(one) for one in found.get(6, ())).decode(errors="replace")
    return WatchReply(
        _header(found),
        bool(_last(found, 3)),
        bool(_last(found, 4)),
        as_signed(_last(found, 5)),
        reason,
        [_read_event(as_bytes(one)) for one in found.get(11, ())],
    )


def _read_event(data: bytes) -> WatchEvent:
    found = dict(read_fields(data))
    return WatchEvent(bool(found.get(1, 0)), read_key_value(as_bytes(found.get(2, b""))))


def read_lease(data: bytes) -> tuple[int, int]:
    """(number of a lease, seconds it has left) of a grant or a renewal; 0 seconds: there is no such lease."""
    found = dict(read_fields(data))
    return as_signed(found.get(2, 0)), as_signed(found.get(3, 0))


def read_status(data: bytes) -> StatusReply:
    """A StatusResponse of one member."""
    found = dict(read_fields(data))
    version = as_bytes(found.get(2, b"")).decode(errors="replace")
    return StatusReply(read_header(as_bytes(found.get(1, b""))), version, as_int(found.get(4, 0)))


def read_alarms(data: bytes) -> list[int]:
    """The kinds of alarms that are up (1: no space, 2: damaged)."""
    return [as_int(_last(_all_fields(as_bytes(one)), 2)) for one in _all_fields(data).get(2, ())]
