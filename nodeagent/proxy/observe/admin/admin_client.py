"""Questions to the agent of this machine, for commands. Blocking."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from nodeagent.proxy.observe.admin.admin_documents import Status
from nodeagent.proxy.observe.admin.place import beside, listener_namespace, network_namespace

T = TypeVar("T")

TIMEOUT_SECONDS = 10.0


class NoAgent(Exception):
    """Nobody to ask; one line says where was looked and what was found."""


class MayNotAsk(NoAgent):
    """The socket is not open to this process; the line says to whom it is."""


class Hangs(NoAgent):
    """One is there and says nothing."""


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
    """Asks the agent that listens at one path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, what: str, kind: type[T]) -> T:
        """The answer to ``GET /v1/WHAT``. Raises NoAgent."""
        return msgspec.json.decode(b"".join(self.lines(what)), type=kind)

    def lines(self, what: str) -> Iterator[bytes]:
        """The same, line by line as they come. Raises NoAgent."""
        yield from self._exchange("GET", f"/v1/{what}", None)

    def set_log_level(self, level: str) -> None:
        """Change the level of the agent's log. Raises NoAgent."""
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
            who = "ask as root, or as a member of the group that reporting.socketGroup names"
            raise MayNotAsk(f"the agent's socket {self.path} is not open to you: {who}") from error
        except TimeoutError as error:
            seconds = f"{TIMEOUT_SECONDS:g} s"
            raise Hangs(f"the agent at {self.path} is there and has said nothing for {seconds}: it hangs") from error
        except OSError as error:
            raise NoAgent(f"no agent answers at {self.path}: {error.strerror or error}") from error
        except http.client.HTTPException as error:
            raise NoAgent(f"{self.path}: what answers is no agent: {type(error).__name__}") from error
        finally:
            connection.close()


def find_agent(path: Path | None, usual: Path) -> tuple[AgentClient, Status]:
    """The agent at `path`, or, without a path, the one of this network namespace at `usual` or beside it.

    Raises NoAgent.
    """
    if path is not None:
        client = AgentClient(path)
        return client, client.ask("status", Status)
    reasons: list[NoAgent] = []
    for place in (beside(usual), usual):
        client = AgentClient(place)
        try:
            status = client.ask("status", Status)
        except NoAgent as error:
            namespace = listener_namespace(place) if isinstance(error, Hangs) else None
            foreign = namespace not in (None, network_namespace())
            reasons.append(NoAgent(f"{error}, in another network namespace (--socket asks it)") if foreign else error)
            continue
        if status.network_namespace == network_namespace():
            return client, status
        where = "in another network namespace (--socket asks it)"
        reasons.append(NoAgent(f"the agent at {place} is of node {status.node}, {where}"))
    raise next((one for one in reasons if isinstance(one, Hangs)), reasons[-1])
