"""The process that answers names in a namespace, killed, so that the next test finds nobody: one that was asked to end would
answer it for a moment."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nodeagent.lab.net.network_namespaces import DIRECTORY, is_alive
from nodeagent.names.feed.spawn import MODULE

PATIENCE_SECONDS = 60.0


def kill_dns_processes(namespace: str) -> None:
    """Return when they are gone."""
    for pid in tuple(_dns_processes((DIRECTORY / namespace).stat().st_ino)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + PATIENCE_SECONDS
        while is_alive(pid):
            assert time.monotonic() < end, "a killed process stays"
            time.sleep(0.005)


def _dns_processes(network: int) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "ns/net").stat().st_ino == network and MODULE.encode() in (process / "cmdline").read_bytes():
                yield int(process.name)
