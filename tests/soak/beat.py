"""How much slower than alone a piece of work is on this machine now: a process of its own prints it all the time."""

import subprocess
import sys
import threading

from tests.soak.records import Beat

PROGRAM = """
import time
while True:
    wall, mine = time.monotonic(), time.thread_time()
    while time.thread_time() < mine + 0.008:
        pass
    spent = time.thread_time() - mine
    print(time.monotonic(), (time.monotonic() - wall) / spent, flush=True)
    time.sleep(0.25)
"""
"""Eight milliseconds of work are more than a turn that the kernel gives, and less than a pass of an agent."""


class Heartbeat:
    """beats: every measurement so far."""

    def __init__(self) -> None:
        self.beats: list[Beat] = []
        self._process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, name="heartbeat", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at, factor = line.split()
            self.beats.append(Beat(float(at), max(1.0, round(float(factor), 2))))

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
