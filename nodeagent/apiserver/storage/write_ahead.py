"""Detects a write-ahead log that is damaged before its end, which SQLite ignores
(https://sqlite.org/fileformat2.html#walformat).

SQLite reads the log up to the first frame with a wrong checksum, and treats the rest as left by a crash. A crash leaves at most
one transaction that was not acknowledged; if more follow that frame, acknowledged ones would be lost.
"""

import struct
from enum import Enum
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_LITTLE, _BIG = 0x377F0682, 0x377F0683
_WORD: Final = 2**32 - 1


class LogEnding(Enum):
    """How a write-ahead log ends."""

    WHOLE = "whole"
    TORN = "torn"
    """With one transaction that cannot be read; it is unknown whether it was acknowledged."""
    BROKEN = "broken"
    """With acknowledged transactions that cannot be read."""


def examine(path: str) -> LogEnding:
    """Returns how the log in that file ends; one that is missing or empty is whole."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return LogEnding.WHOLE
    if len(data) < _HEADER.size + _FRAME.size:
        return LogEnding.WHOLE
    magic, _, page, _, salt_1, salt_2, sum_1, sum_2 = _HEADER.unpack_from(data)
    order = {_LITTLE: "<", _BIG: ">"}.get(magic, "")
    if not order or _checksum(order, data[:24], 0, 0) != (sum_1, sum_2):
        return LogEnding.BROKEN
    return _walk(data, order, page, (salt_1, salt_2), (sum_1, sum_2))


def _walk(data: bytes, order: str, page: int, salts: tuple[int, int], sums: tuple[int, int]) -> LogEnding:
    size = _FRAME.size + page
    unreadable = commits = 0
    for start in range(_HEADER.size, len(data) - size + 1, size):
        _, committed, salt_1, salt_2, sum_1, sum_2 = _FRAME.unpack_from(data, start)
        if (salt_1, salt_2) != salts:
            if not unreadable and not _continues(data, start + size, size, salts):
                # Frames from before the log was restarted.
                break
            unreadable += 1
            continue
        if not unreadable:
            sums = _checksum(order, data[start : start + 8], *sums)
            sums = _checksum(order, data[start + _FRAME.size : start + size], *sums)
            if sums == (sum_1, sum_2):
                continue
        unreadable += 1
        commits += committed != 0
    if commits > 1:
        return LogEnding.BROKEN
    return LogEnding.TORN if unreadable else LogEnding.WHOLE


def _continues(data: bytes, start: int, size: int, salts: tuple[int, int]) -> bool:
    """Returns whether a later frame belongs to this log."""
    return any(
        _FRAME.unpack_from(data, position)[2:4] == salts for position in range(start, len(data) - size + 1, size)
    )


def _checksum(order: str, data: bytes, sum_1: int, sum_2: int) -> tuple[int, int]:
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        sum_1 = (sum_1 + words[index] + sum_2) & _WORD
        sum_2 = (sum_2 + words[index + 1] + sum_1) & _WORD
    return sum_1, sum_2
