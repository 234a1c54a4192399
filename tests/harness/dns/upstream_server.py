"""A scripted resolver on a node of a world, for its DNS process to ask."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.lab.net.network_namespaces import inside
from tests.harness.dns.scripted_resolver import ScriptedResolver

ADDRESS = ("127.0.0.1", 5301)
FLAG = f"{ADDRESS[0]}:{ADDRESS[1]}"


@contextmanager
def scripted_upstream(namespace: str) -> Iterator[None]:
    """Answers at `ADDRESS` of a namespace."""

    def opened() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(ADDRESS)
        return sock

    script = ScriptedResolver()
    with inside(namespace, opened) as sock:

        def serve() -> None:
            while True:
                packet, peer = sock.recvfrom(4096)
                if not packet:
                    return
                if (reply := script.reply(packet)) is not None:
                    sock.sendto(reply, peer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            sock.sendto(b"", ADDRESS)
            thread.join()
