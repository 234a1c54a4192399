"""The node's own resolvers, read again as resolv.conf changes."""

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
    """Knows the servers for names that are in no stub zone."""

    @property
    def servers(self) -> tuple[Server, ...]: ...
    async def run(self, changed: Callable[[], None]) -> None: ...


class FixedResolvers:
    """The configured servers."""

    def __init__(self, servers: Collection[Server]) -> None:
        self.servers = tuple(servers)

    async def run(self, changed: Callable[[], None]) -> None:
        """Returns at once: the servers never change."""


class NodeResolvers:
    """The servers of resolv.conf. behind: the file that systemd-resolved writes for programs that do not want its stub.

    The files are read by path every two seconds, because they are replaced, linked and mounted over; reading takes less
    than 0.1 ms. If a file vanishes or lists no server, the last list stays in use.
    """

    def __init__(self, path: Path = RESOLV_CONF, behind: Path = BEHIND_STUB) -> None:
        self._path = path
        self._behind = behind
        self._conf = ResolvConf()
        self._servers: tuple[Server, ...] = ()
        self._reread()

    @property
    def servers(self) -> tuple[Server, ...]:
        return self._servers

    @property
    def search(self) -> tuple[str, ...]:
        """The node's search domains, without trailing dots."""
        return self._conf.search

    async def run(self, changed: Callable[[], None]) -> None:
        """Follows the files; calls `changed` after the list of servers changed. Ends only when cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._reread():
                logger.info("upstream resolvers of %s: %s", self._path, ", ".join(map(str, self._servers)))
                changed()

    def _reread(self) -> bool:
        """Reads the files. Returns whether the servers changed."""
        conf = _read(self._path)
        if not conf.nameservers:
            return False
        self._conf = conf
        before, self._servers = self._servers, servers_behind(conf, _read(self._behind))
        return self._servers != before


def current_resolvers(path: Path = RESOLV_CONF, behind: Path = BEHIND_STUB) -> tuple[Server, ...]:
    """Returns the servers that this node uses now; reads two small files."""
    return servers_behind(_read(path), _read(behind))


def _read(path: Path) -> ResolvConf:
    """Returns the contents of a resolv.conf; empty if there is no such file."""
    try:
        with path.open("rb") as file:
            return parse_resolv_conf(file.read(LARGEST).decode(errors="replace"))
    except OSError:
        return ResolvConf()
