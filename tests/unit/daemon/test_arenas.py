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
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stderr
    return told.count("Arena ")


def test_threads_share_one_arena() -> None:
    assert arenas("use_one_arena()") == 1


def test_by_default_they_have_several() -> None:
    assert arenas("pass") > 1
