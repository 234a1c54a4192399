"""A question as it is sent upstream, independent of the client. Pure."""

from string import ascii_lowercase
from typing import NamedTuple

from nodeagent.wire.dns.codes import CD, CLASS_IN, RD, RecordType
from nodeagent.wire.dns.query import Query

AD = 0x20
"""Bit of the fourth byte of a header: the answer was validated, or its client wants to know (RFC 6840, 5.7)."""

_LETTERS = frozenset(ascii_lowercase.encode())


class Asked(NamedTuple):
    """Queries with equal values get the same answer, and are asked once.

    question: name, type and class, lower-case. dnssec: AD and CD of the client, as in the header; ok: its DO.
    """

    question: bytes
    recursion: bool = True
    dnssec: int = 0
    ok: bool = False

    @property
    def name(self) -> bytes:
        return self.question[:-4]

    @property
    def kind(self) -> int:
        return int.from_bytes(self.question[-4:-2], "big")

    def packet(self, ident: int, question: bytes, payload: int) -> bytes:
        """The query for upstream. question: ours in some letter case. payload: our EDNS size, 0 without EDNS.

        Options of the client are not passed on: they belong to one hop (RFC 6891, 6.2.6), and would keep apart what
        is otherwise one question.
        """
        flags = bytes((RD if self.recursion else 0, self.dnssec))
        header = ident.to_bytes(2, "big") + flags + b"\0\1\0\0\0\0" + (b"\0\1" if payload else b"\0\0")
        if not payload:
            return header + question
        opt = b"\0\0\x29" + payload.to_bytes(2, "big") + b"\0\0" + (b"\x80\0" if self.ok else b"\0\0") + b"\0\0"
        return header + question + opt


def asked_by(query: Query) -> Asked:
    """What a client's query asks."""
    return Asked(
        query.question[:-4].lower() + query.question[-4:],
        bool(query.packet[2] & RD),
        query.packet[3] & (AD | CD),
        query.edns is not None and query.edns.dnssec_ok,
    )


def question_of(name: bytes, kind: RecordType) -> bytes:
    """Name, type and class IN as they stand in a message."""
    return name + kind.to_bytes(2, "big") + CLASS_IN.to_bytes(2, "big")


def spelled(question: bytes, bits: int) -> bytes:
    """The question with each letter of its name in the case that a bit of `bits` says (0x20)."""
    name = bytes(byte ^ 0x20 if byte in _LETTERS and bits >> at & 1 else byte for at, byte in enumerate(question[:-4]))
    return name + question[-4:]
