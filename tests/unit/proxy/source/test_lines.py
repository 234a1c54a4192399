"""What a line that is not complete yet takes."""

import tracemalloc

from nodeagent.proxy.source.lines import LineSplitter


def test_a_line_in_tiny_pieces_takes_no_more_memory_than_its_bytes() -> None:
    splitter = LineSplitter()
    pieces = [bytes((97 + number % 26, 97 + number // 26 % 26)) for number in range(10_000)]
    tracemalloc.start()
    try:
        for piece in pieces:
            splitter.feed(bytes(bytearray(piece)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * 20_000
