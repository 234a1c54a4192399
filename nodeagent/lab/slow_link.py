"""A slow link: ``python -m nodeagent.lab.slow_link PORT BRIDGE MILLISECONDS``, in the namespace of the bridge.

Takes PORT out of the bridge and puts a line between both that delays every frame in each direction. At its end
(SIGTERM) the port is back in the bridge. It needs /dev/net/tun, but not sch_netem, which small kernels lack.
"""

import fcntl
import os
import select
import signal
import struct
import sys
import time
from collections import deque

from nodeagent.lab.net.network_namespaces import run_ip
from nodeagent.runtime.interrupts import prompt_signal_handling

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
LONGEST_FRAME = 65536


def open_tap(name: str) -> int:
    """Creates an interface. Returns a descriptor for its frames."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def splice(port: str, bridge: str) -> tuple[int, int]:
    """Inserts the line. Returns the descriptors of its ends."""
    near, far, own = f"near-{port}", f"far-{port}", f"own-{port}"
    ends = open_tap(near), open_tap(far)
    lines = [f"link add {own} type bridge mcast_snooping 0", f"link set {own} up"]
    lines += [f"link set {near} master {own} up", f"link set {far} master {bridge} up", f"link set {port} master {own}"]
    run_ip([], lines)
    return ends


def restore_lines(port: str, bridge: str) -> list[str]:
    """Returns the `ip` commands that remove the line; its ends vanish with their descriptors."""
    return [f"link set {port} master {bridge}", f"link del own-{port}"]


def carry(ends: tuple[int, int], delay: float) -> None:
    """Forwards frames until a signal ends it."""
    waiting: dict[int, deque[tuple[float, bytes]]] = {end: deque() for end in ends}
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    while True:
        due = min((queue[0][0] for queue in waiting.values() if queue), default=None)
        patience = None if due is None else max(0.0, due - time.monotonic())
        ready, _, _ = select.select(ends, [], [], patience)
        now = time.monotonic()
        for end in ready:
            waiting[other[end]].append((now + delay, os.read(end, LONGEST_FRAME)))
        for end, queue in waiting.items():
            while queue and queue[0][0] <= now:
                os.write(end, queue.popleft()[1])


def main(port: str, bridge: str, milliseconds: str) -> None:
    """Delays frames until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        ends = splice(port, bridge)
        print("in place", flush=True)
        with prompt_signal_handling():
            carry(ends, float(milliseconds) / 1000)
    finally:
        run_ip(["-force"], restore_lines(port, bridge))  # both commands, even if only half was in place


if __name__ == "__main__":
    main(*sys.argv[1:])
