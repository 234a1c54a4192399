"""Answers of CoreDNS 1.14.7 to queries about recorded objects, and how one of ours is compared with them.

`recorded/answers.json` describes its format in its head; `served.json` holds the objects, `upstream.json` what the resolver
behind the cluster's DNS says.
"""

import json
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import msgspec

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR, key_of, service_of

HERE = Path(__file__).parent / "recorded"
Answer = dict[str, Any]


@cache
def answers() -> tuple[Answer, ...]:
    """All records, with the complete sections of cut answers in `full`."""
    records: list[Answer] = json.loads((HERE / "answers.json").read_text())["records"]
    by_id = {record["id"]: record for record in records}
    for record in records:
        if isinstance(record.get("full"), str):
            record["full"] = by_id[record["full"]]["answer"]
    return tuple(records)


class RecordedObjects:
    """The objects as an API server gives them, as a snapshot."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.service_cidrs: tuple[ServiceCIDR, ...] = ()
        self.services: dict[ObjectKey, Service] = {}
        self.namespaces: list[str] = []
        self._slices: dict[ObjectKey, list[EndpointSlice]] = {}
        for document in json.loads((HERE / "served.json").read_text())["items"]:
            if document["kind"] == "Service":
                service = msgspec.convert(document, Service)
                self.services[key_of(service)] = service
            elif document["kind"] == "EndpointSlice":
                one = msgspec.convert(document, EndpointSlice)
                owner = service_of(one)
                if owner is not None:
                    self._slices.setdefault(owner, []).append(one)
            elif document["kind"] == "Namespace":
                self.namespaces.append(document["metadata"]["name"])

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        return self._slices.get(service, ())


def wire_name(text: str) -> bytes:
    """The wire form of a name as dnspython reads it."""
    wire = dns.name.from_text(text).to_wire()
    assert wire is not None
    return wire


def packet_of(query: dict[str, Any], ident: int) -> bytes:
    """The bytes of a recorded query."""
    if "hex" in query:
        raw: bytes = bytes.fromhex(query["hex"])
        return ident.to_bytes(2, "big") + raw[2:] if len(raw) >= 2 else raw
    bits: int = query.get("opcode", 0) << 11
    for flag, word, default in ((dns.flags.RD, "rd", 1), (dns.flags.AD, "ad", 0), (dns.flags.CD, "cd", 0)):
        bits |= flag if query.get(word, default) else 0
    name = wire_name(query["name"])
    kind = dns.rdatatype.from_text(query["type"])
    klass = dns.rdataclass.from_text(query.get("class", "IN"))
    header = ident.to_bytes(2, "big") + bits.to_bytes(2, "big")
    question = name + int(kind).to_bytes(2, "big") + int(klass).to_bytes(2, "big")
    size = query.get("edns")
    if size is None:
        return header + b"\0\1\0\0\0\0\0\0" + question
    options: bytes = b"".join(
        code.to_bytes(2, "big") + (len(value) // 2).to_bytes(2, "big") + bytes.fromhex(value)
        for code, value in query.get("options", ())
    )
    flags = bytes((0, query.get("version", 0), 0x80 if query.get("do") else 0, 0))
    opt: bytes = b"\0\0\x29" + int(size).to_bytes(2, "big") + flags + len(options).to_bytes(2, "big") + options
    return header + b"\0\1\0\0\0\0\0\1" + question + opt


def differences(record: Answer, reply: bytes | None, *, aged: bool = False) -> list[str]:
    """What of a reply is not as recorded, one line each. Order and letter case of records do not count. aged: a TTL may
    be lower than recorded, but not 0, as a cache leaves it."""
    want = record["answer"]
    if reply is None or "none" in want:
        return [] if reply is None and "none" in want else ["a reply, or silence, where the other was recorded"]
    message = dns.message.from_wire(reply, ignore_trailing=True)
    found = []
    if dns.rcode.to_text(message.rcode()) != want["rcode"]:
        found.append(f"rcode {dns.rcode.to_text(message.rcode())}, recorded {want['rcode']}")
    found += [
        f"{flag.name} is {'' if message.flags & flag else 'not '}set, recorded the other way"
        for flag in (dns.flags.AA, dns.flags.TC, dns.flags.RD, dns.flags.RA, dns.flags.CD)
        if bool(message.flags & flag) != (flag.name in want["flags"])
    ]
    question = [(q.name.to_text(), int(q.rdclass), int(q.rdtype)) for q in message.question]
    if question != [_question(line) for line in want["question"]]:
        found.append(f"question {question}, recorded {want['question']}")
    found += _compare_edns(want["edns"], message)
    cut = "TC" in want["flags"]
    full: Answer = record.get("full") or want
    for name in ("answer", "authority", "additional"):
        records = list(_records(getattr(message, name)))
        found += _compare(name, full[name], _grown(records, full[name]) if aged else records, cut=cut)
    limit = max(512, record["query"].get("edns", 0))
    if cut and record["transport"] == "udp" and len(reply) > limit:
        found.append(f"{len(reply)} bytes are too many")
    return found


def _grown(lines: list[str], recorded: list[str]) -> list[str]:
    """The lines, with the recorded TTL where theirs is lower."""
    ttls = {(line.split(" ")[0].lower(), *line.split(" ")[2:4]): line.split(" ")[1] for line in recorded}
    grown = []
    for line in lines:
        owner, ttl, *rest = line.split(" ")
        full = ttls.get((owner.lower(), *rest[:2]), ttl)
        grown.append(" ".join([owner, full if 0 < int(ttl) <= int(full) else ttl, *rest]))
    return grown


def _compare_edns(want: Answer | None, message: dns.message.Message) -> Iterator[str]:
    if (message.edns < 0) != (want is None):
        yield "OPT is there or not, recorded the other way"
    elif want is not None and message.payload != want["size"]:
        yield f"EDNS size {message.payload}, recorded {want['size']}"


def _compare(section: str, want: list[str], got: list[str], *, cut: bool) -> Iterator[str]:
    wanted = {_comparable(line) for line in want}
    seen = {_comparable(line) for line in got}
    yield from (f"{section}: unexpected {line}" for line in sorted(seen - wanted))
    if not cut:
        yield from (f"{section}: missing {line}" for line in sorted(wanted - seen))
    if len(seen) != len(got):
        yield f"{section}: a record twice"


def _comparable(line: str) -> str:
    return line if " TXT " in line else line.lower()


def _records(rrsets: list[Any]) -> Iterator[str]:
    for rrset in rrsets:
        for rdata in rrset:
            text: str = rdata.to_text()
            if rrset.rdtype == dns.rdatatype.SOA:
                words = text.split(" ")
                text = " ".join([*words[:2], "*", *words[3:]])
            yield f"{rrset.name} {rrset.ttl} IN {dns.rdatatype.to_text(rrset.rdtype)} {text}"


def _question(line: str) -> tuple[str, int, int]:
    name, klass, kind = line.rsplit(" ", 2)
    return name, int(dns.rdataclass.from_text(klass)), int(dns.rdatatype.from_text(kind))
