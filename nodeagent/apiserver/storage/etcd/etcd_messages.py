"""The messages of etcd's API that are used here, in protobuf (api/etcdserverpb/rpc.proto, api/mvccpb/kv.proto). Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from nodeagent.wire.protobuf import as_bytes, as_int, as_signed, bytes_field, number_field, read_fields

VERSION, MODIFIED = 0, 2
"""What of a key is compared in a transaction: how often it was written, or the revision it was last written at."""


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    """A stored key; `version` counts its writes since it was created."""

    key: bytes = b""
    mod_revision: int = 0
    version: int = 0
    value: bytes = b""
    lease: int = 0


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One change. For a deletion `kv` has only key and revision."""

    deleted: bool
    kv: KeyValue


@dataclass(frozen=True, slots=True)
class Header:
    """The cluster and the member that answered, and its latest revision."""

    cluster: int = 0
    member: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True)
class RangeReply:
    """Keys in order; `more`: whether there are further ones."""

    header: Header
    kvs: Sequence[KeyValue]
    more: bool


@dataclass(frozen=True, slots=True)
class TxnReply:
    """The result of a transaction; `ranges` are the results of its reads, in order."""

    header: Header
    succeeded: bool
    ranges: Sequence[RangeReply]


@dataclass(frozen=True, slots=True)
class WatchReply:
    """One message of a watch. Without events, created or canceled it only reports progress."""

    header: Header
    created: bool
    canceled: bool
    compact_revision: int
    reason: str
    events: Sequence[WatchEvent]


@dataclass(frozen=True, slots=True)
class StatusReply:
    """The status of one member: its release, and the id of its leader (0: no leader)."""

    header: Header
    version: str
    leader: int


def _number(field: int, value: int) -> bytes:
    return number_field(field, value) if value else b""


def _data(field: int, value: bytes, *, always: bool = False) -> bytes:
    return bytes_field(field, value) if value or always else b""


def range_request(key: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0, keys_only: bool = False) -> bytes:
    """Encodes a read of a key, or of the keys from `key` up to, but not including, `end`; by default at the latest revision."""
    parts = (_data(1, key), _data(2, end), _number(3, limit), _number(4, revision))
    return b"".join((*parts, _number(8, keys_only)))


def put_request(key: bytes, value: bytes, lease: int = 0) -> bytes:
    """Encodes a write of a key."""
    return _data(1, key) + _data(2, value) + _number(3, lease)


def delete_request(key: bytes, end: bytes = b"") -> bytes:
    """Encodes the deletion of a key, or of a range of keys."""
    return _data(1, key) + _data(2, end)


def compare(key: bytes, target: int, number: int) -> bytes:
    """Encodes the condition that the key's version or revision is `number`; 0: the key does not exist."""
    # 0 is encoded, too: the field belongs to a oneof and selects its member.
    field = {VERSION: 4, MODIFIED: 6}[target]
    return _number(2, target) + _data(3, key) + number_field(field, number)


def as_range(request: bytes) -> bytes:
    """Encodes a read as an operation of a transaction."""
    return _data(1, request, always=True)


def as_put(request: bytes) -> bytes:
    """Encodes a write as an operation of a transaction."""
    return _data(2, request, always=True)


def as_delete(request: bytes) -> bytes:
    """Encodes a deletion as an operation of a transaction."""
    return _data(3, request, always=True)


def txn_request(compares: Sequence[bytes], success: Sequence[bytes], failure: Sequence[bytes] = ()) -> bytes:
    """Encodes a transaction: if all compares hold, the operations of `success`, else those of `failure`."""
    parts = [_data(1, one, always=True) for one in compares]
    parts += [_data(2, one, always=True) for one in success]
    return b"".join([*parts, *(_data(3, one, always=True) for one in failure)])


def compaction_request(revision: int) -> bytes:
    """Encodes a compaction of the history up to a revision."""
    return _number(1, revision)


def watch_create(key: bytes, end: bytes, start: int) -> bytes:
    """Encodes a watch of a range, with every change from revision `start` on."""
    return _data(1, _data(1, key) + _data(2, end) + _number(3, start), always=True)


def watch_progress() -> bytes:
    """Encodes a request for a watch's progress."""
    return _data(3, b"", always=True)


def lease_grant(seconds: int) -> bytes:
    """Encodes a request for a new lease, whose id etcd chooses."""
    return _number(1, seconds)


def lease_number(number: int) -> bytes:
    """Encodes the renewal or revocation of a lease."""
    return _number(1, number)


def _all_fields(data: bytes) -> dict[int, list[int | bytes]]:
    """Returns all values of each field, in the order of the message."""
    found: dict[int, list[int | bytes]] = {}
    for number, value in read_fields(data):
        found.setdefault(number, []).append(value)
    return found


def _last(found: dict[int, list[int | bytes]], number: int) -> int | bytes:
    """Returns the last value of a field; 0 if it is missing."""
    return found[number][-1] if number in found else 0


def _header(found: dict[int, list[int | bytes]]) -> Header:
    return read_header(as_bytes(found[1][-1])) if 1 in found else Header()


def read_header(data: bytes) -> Header:
    """Decodes a ResponseHeader."""
    found = dict(read_fields(data))
    return Header(as_int(found.get(1, 0)), as_int(found.get(2, 0)), as_signed(found.get(3, 0)))


def read_any_header(data: bytes) -> Header:
    """Decodes only the header of a response."""
    return _header(_all_fields(data))


def read_key_value(data: bytes) -> KeyValue:
    """Decodes a KeyValue."""
    found = dict(read_fields(data))
    return KeyValue(
        as_bytes(found.get(1, b"")),
        as_signed(found.get(3, 0)),
        as_signed(found.get(4, 0)),
        as_bytes(found.get(5, b"")),
        as_signed(found.get(6, 0)),
    )


def read_range(data: bytes) -> RangeReply:
    """Decodes a RangeResponse."""
    found = _all_fields(data)
    kvs = [read_key_value(as_bytes(one)) for one in found.get(2, ())]
    return RangeReply(_header(found), kvs, bool(_last(found, 3)))


def read_txn(data: bytes) -> TxnReply:
    """Decodes a TxnResponse."""
    found = _all_fields(data)
    ranges = [read_range(as_bytes(read)) for one in found.get(3, ()) for read in _all_fields(as_bytes(one)).get(1, ())]
    return TxnReply(_header(found), bool(_last(found, 2)), ranges)


def read_watch(data: bytes) -> WatchReply:
    """Decodes a WatchResponse."""
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
    """Decodes a grant or a renewal: (id of the lease, seconds it has left; 0: it does not exist)."""
    found = dict(read_fields(data))
    return as_signed(found.get(2, 0)), as_signed(found.get(3, 0))


def read_status(data: bytes) -> StatusReply:
    """Decodes a StatusResponse of one member."""
    found = dict(read_fields(data))
    version = as_bytes(found.get(2, b"")).decode(errors="replace")
    return StatusReply(read_header(as_bytes(found.get(1, b""))), version, as_int(found.get(4, 0)))


def read_alarms(data: bytes) -> list[int]:
    """Decodes the kinds of active alarms (1: no space, 2: corrupt)."""
    return [as_int(_last(_all_fields(as_bytes(one)), 2)) for one in _all_fields(data).get(2, ())]
