"""Finds out whether a kube-proxy runs in this network namespace: it would write its rules again."""

from pathlib import Path

from nodeagent.proxy.dataplane.kube_proxy import kube_proxy_names


def running_kube_proxy(proc: Path = Path("/proc")) -> int | None:
    """Returns its process id; None if no such process is visible from here (a container may see only its own processes)."""
    ours = _network_namespace(proc / "thread-self")
    for directory in proc.iterdir():
        if not directory.name.isdigit():
            continue
        try:
            command = (directory / "comm").read_text().strip()
        except OSError:
            continue
        if command == kube_proxy_names.TABLE and _network_namespace(directory) == ours:
            return int(directory.name)
    return None


def _network_namespace(process: Path) -> str | None:
    try:
        return str((process / "ns" / "net").readlink())
    except OSError:
        return None
