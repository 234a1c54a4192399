"""Records and answers as text, in the form of master files (RFC 1035, 5)."""

from ipaddress import IPv4Address, IPv6Address

from nodeagent.wire.dns.codes import RecordType, type_text
from nodeagent.wire.dns.domain_names import to_text
from nodeagent.wire.dns.message import NAMES_IN_RDATA, Record

_FIRST_PRINTED, _LAST_PRINTED = 0x20, 0x7E


def record_text(record: Record) -> str:
    """Returns ``web.shop.svc.cluster.local. 30 IN A 10.96.0.1``; data of unknown types in the form of RFC 3597."""
    return f"{to_text(record.owner)} {record.ttl} IN {type_text(record.kind)} {data_text(record)}"


def data_text(record: Record) -> str:
    """Returns the data only."""
    rdata = record.rdata
    match record.kind:
        case RecordType.A if len(rdata) == IPv4Address(0).max_prefixlen // 8:
            return str(IPv4Address(rdata))
        case RecordType.AAAA if len(rdata) == IPv6Address(0).max_prefixlen // 8:
            return str(IPv6Address(rdata))
        case RecordType.TXT:
            return " ".join(map(_quoted, _strings(rdata)))
    if record.kind in NAMES_IN_RDATA:
        before, names = NAMES_IN_RDATA[RecordType(record.kind)]
        parts = [str(rdata[at] << 8 | rdata[at + 1]) for at in range(0, before, 2)]
        at = before
        for _ in range(names):
            end = at
            while rdata[end]:
                end += 1 + rdata[end]
            parts.append(to_text(rdata[at : end + 1]))
            at = end + 1
        parts += [str(int.from_bytes(rdata[start : start + 4], "big")) for start in range(at, len(rdata), 4)]
        return " ".join(parts)
    return f"\\# {len(rdata)} {rdata.hex()}".rstrip()


def _strings(rdata: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(rdata):
        found.append(rdata[at + 1 : at + 1 + rdata[at]])
        at += 1 + rdata[at]
    return found


def _quoted(text: bytes) -> str:
    escaped = "".join(
        chr(byte) if _FIRST_PRINTED <= byte <= _LAST_PRINTED and byte not in b'"\\' else f"\\{byte:03d}"
        for byte in text
    )
    return f'"{escaped}"'
