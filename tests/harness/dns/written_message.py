"""Whole DNS messages for tests."""

from nodeagent.wire.dns.message import Sections, Writer


def write(header: bytes, question: bytes, sections: Sections) -> bytes:
    """Returns a whole message. header: id and flags, four bytes."""
    writer = Writer(question)
    for section in sections:
        for record in section:
            writer.add(record)
    return header + b"\0\1" + b"".join(len(section).to_bytes(2, "big") for section in sections) + writer.body()
