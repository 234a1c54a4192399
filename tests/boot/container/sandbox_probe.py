"""Runs in the service's sandbox, in place of the agent, and prints as JSON what became of each attempt.

Nothing but the standard library of the machine's Python is there.
"""

import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

AF_ALG, AF_PACKET, AF_VSOCK = 38, 17, 40


def run(*argv: str) -> None:
    """A program that fails where its system call does."""
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if result.returncode:
        raise OSError(result.stderr.strip())


def write(path: str, text: str = "x") -> None:
    Path(path).write_text(text)


def open_socket(family: int, kind: int = socket.SOCK_DGRAM, protocol: int = 0) -> None:
    socket.socket(family, kind, protocol).close()


def open_rtnetlink() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.bind((0, 0))


def set_clock() -> None:
    time.clock_settime(time.CLOCK_REALTIME, time.time())


ATTEMPTS: dict[str, Callable[[], object]] = {
    "write to the state directory": lambda: write("/var/lib/nodeagent/probe"),
    "write to the runtime directory": lambda: write("/run/probe/probe"),
    "write a network sysctl": lambda: write("/proc/sys/net/ipv4/ip_forward", "1"),
    "open a netlink socket": open_rtnetlink,
    "open an IPv6 socket": lambda: open_socket(socket.AF_INET6),
    "write to /etc": lambda: write("/etc/nodeagent/probe"),
    "write to /usr": lambda: write("/usr/probe"),
    "write to another state directory": lambda: write("/var/lib/probe"),
    "write another sysctl": lambda: write("/proc/sys/kernel/panic", "1"),
    "see home directories": lambda: os.listdir("/root"),
    "read what is root's": lambda: Path("/etc/shadow").read_text(),
    "become root": lambda: os.setuid(0),
    "change an owner": lambda: os.chown("/var/lib/nodeagent", 0, 0),
    "open a packet socket": lambda: open_socket(AF_PACKET, socket.SOCK_RAW),
    "open a raw socket": lambda: open_socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "open a crypto socket": lambda: open_socket(AF_ALG, socket.SOCK_SEQPACKET),
    "open a vsock": lambda: open_socket(AF_VSOCK, socket.SOCK_STREAM),
    "bind a low port": lambda: socket.socket().bind(("127.0.0.1", 79)),
    "make a user namespace": lambda: run("unshare", "--user", "true"),
    "mount": lambda: run("mount", "-t", "tmpfs", "none", "/tmp"),
    "program nftables": lambda: run("nft", "add table ip probe; delete table ip probe"),
    "set the clock": set_clock,
    "name the machine": lambda: socket.sethostname("probe"),
    "write code and run it": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC),
    "raise its own priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
}


def outcome(attempt: Callable[[], object]) -> str:
    """`done`, or why not."""
    try:
        attempt()
    except OSError as error:
        return error.strerror or str(error)
    return "done"


if __name__ == "__main__":
    json.dump({name: outcome(attempt) for name, attempt in ATTEMPTS.items()}, sys.stdout)
