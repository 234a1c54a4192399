"""What the DNS process says of itself."""

import re
import socket
import subprocess
import sys
from pathlib import Path

from nodeagent.names.feed.feed_messages import Settings, encode
from nodeagent.runtime.logs.repeats import LINES

LOGGED = 500
PROCESS = f"""
import logging, os, sys
from nodeagent.names.server.dns_process import run_process

def upstream(settings):
    for number in range({LOGGED}):
        logging.getLogger("nodeagent.names.upstream.upstream_probes").warning("upstream %s is odd for the time %d", "a", number)
    os._exit(0)

run_process(int(sys.argv[1]), (int(sys.argv[2]),), os.geteuid() or 65534, upstream, tuple)
"""


def test_a_warning_is_repeated_sixty_times_a_minute_and_no_more(tmp_path: Path) -> None:
    """As in the agent's log: others can cause some of them at any rate."""
    path = tmp_path / "dns.sock"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as queries,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent,
    ):
        listener.bind(str(path))
        listener.listen()
        queries.bind(("127.0.0.1", 0))
        numbers = (listener.fileno(), queries.fileno())
        agent.connect(str(path))
        agent.sendall(encode(Settings()))
        result = subprocess.run(
            [sys.executable, "-c", PROCESS, *map(str, numbers)],
            pass_fds=numbers,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    lines = result.stderr.splitlines()
    assert len(lines) == LINES, result.stderr
    assert all(re.search(r" warning names\.upstream\.upstream_probes: upstream a is odd", line) for line in lines)
