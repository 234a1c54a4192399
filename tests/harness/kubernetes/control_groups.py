"""Control groups of nodes: one of this name in each hierarchy of the machine, which the node sees as its root."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nodeagent.lab.net.network_namespaces import is_alive

ROOT = Path("/sys/fs/cgroup")
NAME = re.compile(r"nodeagent-kubernetes-(?P<pid>[0-9]+)-[a-z0-9-]+")
PATIENCE_SECONDS = 10.0


def group_name(pid: int, cluster: str, node: str) -> str:
    """The name of a node's group; the pid of its creator lets a later run remove what a killed one left."""
    return f"nodeagent-kubernetes-{pid}-{cluster}-{node}"


def hierarchies() -> list[Path]:
    """Where groups can be made: of version 1 one for each controller, of version 2 one for all."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return sorted(path for path in ROOT.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink())


def remove_group(name: str) -> None:
    """Remove a group and those below it, as soon as their processes have gone."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for top in (hierarchy / name for hierarchy in hierarchies()):
        while top.exists() and time.monotonic() < deadline:
            for path in (*sorted(_below(top), reverse=True), top):
                with suppress(OSError):  # a process is still on its way out
                    path.rmdir()
            if top.exists():
                time.sleep(0.05)


def sweep() -> None:
    """Remove the groups whose creator is gone."""
    found = {path.name for hierarchy in hierarchies() for path in hierarchy.glob("nodeagent-kubernetes-*")}
    for name in found:
        match = NAME.fullmatch(name)
        if match and not is_alive(int(match["pid"])):
            remove_group(name)


def _below(top: Path) -> Iterator[Path]:
    return (Path(directory) for directory, _, _ in os.walk(top) if Path(directory) != top)
