#!/usr/bin/env python3
"""What runs in a pod: tells each HTTP client which pod answered, and which address the question came from.

pod_server.py NAME PORT
"""

import socket
import socketserver
import sys


class Answer(socketserver.StreamRequestHandler):
    """One question on one connection."""

    timeout = 30

    def handle(self) -> None:
        """Read the head of the request, whatever it is, and answer."""
        while self.rfile.readline().strip():
            pass
        client = str(self.client_address[0]).removeprefix("::ffff:")
        body = f"{sys.argv[1]} {client}\n".encode()
        self.wfile.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )


class Server(socketserver.ThreadingTCPServer):
    """Both families on one socket."""

    address_family = socket.AF_INET6
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    with Server(("::", int(sys.argv[2])), Answer) as server:
        server.serve_forever()
