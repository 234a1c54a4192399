"""Names: text, labels and wire form."""

from collections.abc import Sequence

LONGEST_NAME = 255
LONGEST_LABEL = 63
POINTER = 0xC0
"""From this value on, a byte before a label is the first half of a pointer."""
LONGEST_POINTER_CHAIN = 126
PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_*")


class BadName(ValueError):
    """Bytes that are not a name, or text that cannot be one."""


def encode(labels: Sequence[bytes]) -> bytes:
    """Returns the wire form. Raises BadName."""
    if any(not 0 < len(label) <= LONGEST_LABEL for label in labels):
        raise BadName("a label has 1 to 63 bytes")
    wire = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    if len(wire) > LONGEST_NAME:
        raise BadName(f"a name has at most {LONGEST_NAME} bytes")
    return wire


def from_text(text: str) -> bytes:
    """Returns the wire form of a name as people and objects write it; the last dot may be missing. Raises BadName."""
    stripped = text.removesuffix(".")
    try:
        return encode([part.encode("ascii") for part in stripped.split(".")]) if stripped else b"\0"
    except UnicodeEncodeError as error:
        raise BadName(f"{text!r} is not ASCII") from error


def to_text(name: bytes) -> str:
    """Returns the name with a last dot; bytes that are not letters, digits, ``-``, ``_`` or ``*`` as ``\\DDD``."""
    return ".".join(map(_label_text, labels_of(name))) + "."


def _label_text(label: bytes) -> str:
    return "".join(chr(c) if c in PLAIN else f"\\{c:03d}" for c in label)


def labels_of(name: bytes) -> list[bytes]:
    """Returns the labels of a valid wire form."""
    labels = []
    at = 0
    while size := name[at]:
        labels.append(name[at + 1 : at + 1 + size])
        at += 1 + size
    return labels


def is_below(name: bytes, zone: bytes) -> bool:
    """Returns whether a name (lower case) is the zone's apex or below it, on a label boundary."""
    if not name.endswith(zone):
        return False
    border = len(name) - len(zone)
    at = 0
    while at < border:
        at += 1 + name[at]
    return at == border


def read(packet: bytes, at: int, known: dict[int, bytes] | None = None) -> tuple[bytes, int]:
    """Returns the name at an offset, pointers followed, and the offset after it. Raises BadName.

    known: names of this message by their offset; names are added. With it the time to read a message is bounded by its
    length, however often its records point to the same long names.
    """
    parts = []
    places = []
    length = 1
    end = -1
    jumps = 0
    while True:
        if known is not None:
            if end >= 0 and at in known:
                rest = known[at]
                break
            places.append((at, length - 1))
        size = packet[at] if at < len(packet) else -1
        if size >= POINTER:
            if end < 0:
                end = at + 2
            jumps += 1
            at = _target(packet, at, jumps)
        elif size > 0:
            length += size + 1
            if size > LONGEST_LABEL or length > LONGEST_NAME or at + 1 + size > len(packet):
                raise BadName("an invalid label, or a name that is too long")
            parts.append(packet[at : at + 1 + size])
            at += 1 + size
        elif size == 0:
            rest = b"\0"
            end = at + 1 if end < 0 else end
            break
        else:
            raise BadName("a name runs past the end")
    name = b"".join(parts) + rest
    if len(name) > LONGEST_NAME:
        raise BadName("a name is too long")
    if known is not None:
        known.update((place, name[before:]) for place, before in places)
    return name, end


def skip_name(packet: bytes, at: int) -> int:
    """Returns the offset after the name at an offset, without following pointers. Raises IndexError."""
    while (size := packet[at]) and size < POINTER:
        at += 1 + size
    return at + (2 if size else 1)


def _target(packet: bytes, at: int, jumps: int) -> int:
    """Returns the target of the pointer at an offset. Raises BadName. jumps: pointers of this name so far, including this one."""
    if at + 1 >= len(packet):
        raise BadName("a pointer runs past the end")
    target = (packet[at] & 0x3F) << 8 | packet[at + 1]
    if target >= at or jumps > LONGEST_POINTER_CHAIN:
        raise BadName("a pointer does not point back")
    return target
