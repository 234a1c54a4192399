"""Splits the pieces of a stream into lines. Pure."""

from nodeagent.proxy.source.client.api_errors import OversizedError

LINE_LIMIT_BYTES = 16 << 20
"""An object may have 1.5 MB in etcd; as JSON, with what an API server adds, it stays far below this."""


class LineSplitter:
    """Makes lines from pieces of any size, in time and memory linear in the bytes however long a line is."""

    def __init__(self, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self._begun = bytearray()
        self._limit = limit_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that `data` completes, without line ends; empty lines are left out.

        Raises OversizedError if a line is longer than the limit.
        """
        first, *others = data.split(b"\n")
        self._append(first)
        if not others:
            return []
        lines = [bytes(self._begun), *others[:-1]]
        self._begun = bytearray()
        self._append(others[-1])
        return [line for line in lines if line.strip()]

    def _append(self, piece: bytes) -> None:
        if len(self._begun) + len(piece) > self._limit:
            raise OversizedError(f"a line of a watch is longer than {self._limit >> 20} MiB")
        self._begun += piece
