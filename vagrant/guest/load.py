#!/usr/bin/env python3
# ruff: noqa: T201 (it is asked for what it prints)
"""Opens connections to services, each of which asks once, and counts what became of them. Needs only Python.

    load.py --count N TARGET...     so many for each target
    load.py --until-eof TARGET...   until standard input ends; "started" is printed first

A TARGET is http:ADDRESS:PORT, where a pod answers with its name and the address it saw, or tcp:ADDRESS:PORT, where it is
enough to be let in. A name in place of the address is looked up anew for each connection. The last line is the sum. The exit code is 1 when a connection failed or none was made, when --pods
is given and a target was answered by fewer, or --seen and a pod saw an address that does not begin with one of these.
"""

import argparse
import socket
import sys
import threading
import time

PATIENCE_SECONDS = 20.0
"""Emulated machines are slow; a connection that was refused or forgotten does not come back in this time either."""


class Target:
    """One address, and what came of asking it."""

    def __init__(self, text: str) -> None:
        self._kind, _, place = text.partition(":")
        host, _, port = place.rpartition(":")
        self._place = (host.strip("[]"), int(port))
        self.pods: set[str] = set()
        self.seen: set[str] = set()
        self.answered = 0
        self.failures: list[str] = []
        self.slowest_seconds = 0.0

    def __str__(self) -> str:
        return f"{self._place[0]} port {self._place[1]}"

    def ask(self) -> None:
        """One connection."""
        began = time.monotonic()
        try:
            with socket.create_connection(self._place, timeout=PATIENCE_SECONDS) as connection:
                if self._kind == "http":
                    self._listen_to(connection)
            self.answered += 1
        except (OSError, ValueError) as error:
            self.failures.append(f"{self}: {error!r}")
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)

    def ask_until(self, end: threading.Event, per_second: float) -> None:
        """At a steady pace, as long as answers come in time."""
        due = time.monotonic()
        while not end.is_set():
            self.ask()
            due = max(due + 1 / per_second, time.monotonic())
            end.wait(due - time.monotonic())

    def _listen_to(self, connection: socket.socket) -> None:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: service\r\nConnection: close\r\n\r\n")
        reply = b""
        while piece := connection.recv(4096):
            reply += piece
        pod, seen = reply.partition(b"\r\n\r\n")[2].decode().split()
        self.pods.add(pod)
        self.seen.add(seen)


def load_until_eof(targets: list[Target], per_second: float) -> None:
    """All targets at once."""
    end = threading.Event()
    threads = [threading.Thread(target=target.ask_until, args=(end, per_second)) for target in targets]
    for thread in threads:
        thread.start()
    print("started", flush=True)
    sys.stdin.read()
    end.set()
    for thread in threads:
        thread.join()


def complaints(target: Target, pods: int, seen: tuple[str, ...]) -> list[str]:
    """What is not as it should be."""
    found = [*target.failures] if target.answered + len(target.failures) else [f"{target}: not asked"]
    if len(target.pods) < pods:
        found.append(f"{target}: of {pods} pods only these answered: {' '.join(sorted(target.pods))}")
    strange = sorted(address for address in target.seen if seen and not address.startswith(seen))
    if strange:
        found.append(f"{target}: pods saw {' '.join(strange)}")
    return found


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--rate", type=float, default=2.0)
    parser.add_argument("--pods", type=int, default=0)
    parser.add_argument("--seen", action="append", default=[])
    parser.add_argument("target", nargs="+")
    given = parser.parse_args()
    targets = [Target(text) for text in given.target]
    for target in targets:
        for _ in range(given.count):
            target.ask()
    if given.until_eof:
        load_until_eof(targets, given.rate)
    problems = [line for target in targets for line in complaints(target, given.pods, tuple(given.seen))]
    for line in problems[:10]:
        print(line, file=sys.stderr)
    answered, failed = (sum(counts) for counts in zip(*((t.answered, len(t.failures)) for t in targets), strict=True))
    slowest_seconds = max(target.slowest_seconds for target in targets)
    pods = sorted(set().union(*(target.pods for target in targets)))
    print(f"{answered} answered, {failed} failed, slowest {slowest_seconds:.2f} s", *pods)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
