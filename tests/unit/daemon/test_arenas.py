"""All threads of the agent take memory from one place."""

import subprocess
import sys

PROGRAM = """
import ctypes, threading
from nodeagent.daemon.arenas import use_one_arena

{first}
together = threading.Barrier(4)

def hold():
    held = [bytes(4096) for _ in range(1000)]
    together.wait()

threads = [threading.Thread(target=hold) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
"""


def arenas(first: str) -> int:
    """As malloc_stats(3) tells them, of a program that begins with this statement."""
    argv = [sys.executable, "-c", PROGRAM.format(first=first)]
    reported = subprocess.run(argv, check=True, capture_output=True, text=True).stderr
    return reported.count("Arena ")


def test_threads_share_one_arena() -> None:
    assert arenas("use_one_arena()") == 1


def test_by_default_they_have_several() -> None:
    assert arenas("pass") > 1


AFTER_A_LARGE_BLOCK = """
import ctypes
from nodeagent.daemon.arenas import use_one_arena

{first}
large = bytes(20 << 20)
del large
held = [bytes(1 << 20) for _ in range(50)]
ctypes.CDLL(None).malloc_stats()
"""


def blocks_of_their_own(first: str) -> int:
    """Returns how many of fifty blocks of 1 MiB have pages of their own, of a program that begins with this statement."""
    argv = [sys.executable, "-c", AFTER_A_LARGE_BLOCK.format(first=first)]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stderr
    return int(printed.partition("max mmap regions =")[2].split()[0])


def test_large_blocks_stay_out_of_the_heap_after_a_larger_one_was_freed() -> None:
    assert blocks_of_their_own("use_one_arena()") >= 50
    assert blocks_of_their_own("pass") < 50
