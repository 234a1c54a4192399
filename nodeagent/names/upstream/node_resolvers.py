"""The node's own resolvers, followed as resolv.conf changes."""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from nodeagent.names.upstream.resolv_conf import ResolvConf, parse_resolv_conf, servers_behind
from nodeagent.names.upstream.upstream_address import Server

RESOLV_CONF = Path("/etc/resolv.conf")
BEHIND_STUB = Path("/run/systemd/resolve/resolv.conf")
LOOK_SECONDS = 2.0
LARGEST = 64 << 10

logger = logging.getLogger(__name__)


class Resolvers(Protocol):
    """Who is asked for names that no stub zone has."""

    @property
    def servers(self) -> tuple[Server, ...]: ...
    async def run(self, changed: Callable[[], None]) -> None: ...


class FixedResolvers:
    """The configured ones."""

    def __init__(self, servers: Collection[Server]) -> None:
        self.servers = tuple(servers)

    async def run(self, changed: Callable[[], None]) -> None:
        """Nothing ever changes."""


class NodeResolvers:
    """behind: what systemd-resolved writes for programs that do not want its stub.

    The files are read by name every two seconds: they are replaced, linked and mounted over, and a look costs less
    than 0.1 ms. A file that vanished or lists nobody leaves the last list in force.
    """

    def __init__(
        self,
        path: Path = RESOLV_CONF,
        behind: Path = BEHIND_STUB,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._path = path
        self._behind = behind
        self._look_seconds = look_seconds
        self._conf = ResolvConf()
        self._servers: tuple[Server, ...] = ()
        self._look()

    @property
    def servers(self) -> tuple[Server, ...]:
        return self._servers

    @property
    def search(self) -> tuple[str, ...]:
        """The node's search domains, without last dots."""
        return self._conf.search

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow the files; `changed` is called after the list of servers is another. Ends only by cancellation."""
        while True:
            await asyncio.sleep(self._look_seconds)
            if self._look():
                logger.info("upstream resolvers of %s: %s", self._path, ", ".join(map(str, self._servers)))
                changed()

    def _look(self) -> bool:
        """Whether the servers changed."""
        conf = _read(self._path)
        if not conf.nameservers:
            return False
        self._conf = conf
        before, self._servers = self._servers, servers_behind(conf, _read(self._behind))
        return self._servers != before


def resolvers_here(path: Path = RESOLV_CONF, behind: Path = BEHIND_STUB) -> tuple[Server, ...]:
    """Whom this node asks now; reads two small files."""
    return servers_behind(_read(path), _read(behind))


def _read(path: Path) -> ResolvConf:
    """Empty when there is no such file."""
    try:
        with path.open("rb") as file:
            return parse_resolv_conf(file.read(LARGEST).decode(errors="replace"))
    except OSError:
        return ResolvConf()
