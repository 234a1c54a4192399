"""A question as it is sent upstream, independent of the client. Pure."""

from string import ascii_lowercase
from typing import NamedTuple

from nodeagent.wire.dns.codes import CD, RD
from nodeagent.wire.dns.query import Edns, Query, query_packet

AD = 0x20
"""Bit of the fourth header byte: the answer was validated, or the client asks whether it was (RFC 6840, 5.7)."""

_LETTERS = frozenset(ascii_lowercase.encode())


class Asked(NamedTuple):
    """A question to upstream. Equal ones get the same answer, and are asked only once at a time.

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
        """Returns the query for upstream. question: ours in some letter case. payload: our EDNS size, 0 without EDNS.

        Options of the client are not passed on: they are hop-by-hop (RFC 6891, 6.2.6), and would split one question
        into many.
        """
        flags = (RD << 8 if self.recursion else 0) | self.dnssec
        return query_packet(ident, question, flags=flags, opt=Edns(payload, self.ok).record() if payload else b"")


def asked_by(query: Query) -> Asked:
    """Returns the question of a client's query."""
    return Asked(
        query.question[:-4].lower() + query.question[-4:],
        bool(query.packet[2] & RD),
        query.packet[3] & (AD | CD),
        query.edns is not None and query.edns.dnssec_ok,
    )


def spelled(question: bytes, bits: int) -> bytes:
    """Returns the question; bit n of `bits` flips the case of the letter at byte n of its name (0x20)."""
    name = bytes(byte ^ 0x20 if byte in _LETTERS and bits >> at & 1 else byte for at, byte in enumerate(question[:-4]))
    return name + question[-4:]
