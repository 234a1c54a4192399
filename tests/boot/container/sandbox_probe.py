"""Runs in the sandbox of the unit in place of the agent, or in the container of the image beside it, and prints as JSON what
became of each attempt.

Nothing but the standard library of the machine's Python is there.
"""

import ctypes
import json
import mmap
import os
import platform
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

AF_ALG, AF_PACKET, AF_VSOCK = 38, 17, 40
CLONE_NEWUSER = 0x10000000


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


def call(function: str, *arguments: object) -> None:
    """A function of the C library: an image has few programs."""
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def system_call(x86_64: int, aarch64: int, *arguments: object) -> None:
    """A system call that the C library has no function for; its numbers (asm/unistd_64.h, asm-generic/unistd.h)."""
    call("syscall", {"x86_64": x86_64, "aarch64": aarch64}[platform.machine()], *arguments)


def join_mounts() -> None:
    """Those of the node's first process, or of the container's."""
    call("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)


def reach_runtime() -> None:
    """The container runtime's socket is root on the node for those who may write to it."""
    with socket.socket(socket.AF_UNIX) as runtime:
        runtime.connect("/run/containerd/containerd.sock")


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
    "make a user namespace": lambda: call("unshare", CLONE_NEWUSER),
    "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "program nftables": lambda: run("nft", "add table ip probe; delete table ip probe"),
    "set the clock": set_clock,
    "make a device": lambda: os.mknod("/tmp/disk", stat.S_IFBLK | 0o600, os.makedev(8, 0)),
    "read the kernel's log": lambda: Path("/dev/kmsg").open("rb").close(),
    "load a module": lambda: system_call(175, 105, b"", ctypes.c_ulong(0), b""),
    "load a program into the kernel": lambda: system_call(
        321, 280, 5, ctypes.byref(ctypes.create_string_buffer(128)), 128
    ),
    "change its root": lambda: os.chroot("/proc"),
    "join other mounts": join_mounts,
    "reach the container runtime": reach_runtime,
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
