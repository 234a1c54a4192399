"""Queries the agent of this machine, for commands. Blocking."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from nodeagent.proxy.observe.admin.admin_documents import Status
from nodeagent.proxy.observe.admin.place import listener_namespace, namespaced_path, network_namespace

T = TypeVar("T")

TIMEOUT_SECONDS = 10.0


class NoAgent(Exception):
    """There is no agent to ask; one line says where the command looked and what it found."""


class SocketForbidden(NoAgent):
    """This process has no permission for the socket; the line says who has."""


class AgentHangs(NoAgent):
    """An agent exists but does not answer."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(str(self._path))


class AgentClient:
    """Queries the agent that listens at one path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, what: str, kind: type[T]) -> T:
        """Returns the answer to ``GET /v1/WHAT``. Raises NoAgent."""
        return msgspec.json.decode(b"".join(self.lines(what)), type=kind)

    def lines(self, what: str) -> Iterator[bytes]:
        """Yields the answer line by line, as the lines come. Raises NoAgent."""
        yield from self._exchange("GET", f"/v1/{what}", None)

    def set_log_level(self, level: str) -> None:
        """Changes the level of the agent's log. Raises NoAgent."""
        list(self._exchange("PUT", "/v1/log-level", json.dumps({"level": level}).encode()))

    def _exchange(self, method: str, path: str, body: bytes | None) -> Iterator[bytes]:
        connection = _Connection(self.path)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise NoAgent(f"{self.path}: {answer.read().decode(errors='replace').strip()}")
            yield from answer
        except PermissionError as error:
            who = "run the command as root, or as a member of the group that reporting.socketGroup names"
            raise SocketForbidden(f"the agent's socket {self.path} is not open to you: {who}") from error
        except TimeoutError as error:
            seconds = f"{TIMEOUT_SECONDS:g} s"
            raise AgentHangs(
                f"the agent at {self.path} exists, but has not answered for {seconds}: it hangs"
            ) from error
        except OSError as error:
            raise NoAgent(f"no agent answers at {self.path}: {error.strerror or error}") from error
        except http.client.HTTPException as error:
            raise NoAgent(f"{self.path}: what answers is not an agent: {type(error).__name__}") from error
        finally:
            connection.close()


def find_agent(path: Path | None, usual: Path) -> tuple[AgentClient, Status]:
    """Returns the agent at `path` or, without a path, the one of this network namespace at `usual` or next to it, and its status.

    Raises NoAgent.
    """
    if path is not None:
        client = AgentClient(path)
        return client, client.ask("status", Status)
    reasons: list[NoAgent] = []
    for place in (namespaced_path(usual), usual):
        client = AgentClient(place)
        try:
            status = client.ask("status", Status)
        except NoAgent as error:
            namespace = listener_namespace(place) if isinstance(error, AgentHangs) else None
            foreign = namespace not in (None, network_namespace())
            reasons.append(NoAgent(f"{error}, in another network namespace (--socket asks it)") if foreign else error)
            continue
        if status.network_namespace == network_namespace():
            return client, status
        where = "in another network namespace (--socket asks it)"
        reasons.append(NoAgent(f"the agent at {place} is of node {status.node}, {where}"))
    raise next((one for one in reasons if isinstance(one, AgentHangs)), reasons[-1])
