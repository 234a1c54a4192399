"""What is measured of nodes, agents and servers when nothing happens."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.net.warm_launcher import NODEAGENT
from tests.soak.records import Deviation, Figure
from tests.soak.stage import Stage

TABLES = (("ip", "nodeagent"), ("ip6", "nodeagent"))
AFFINITY = "affinity"
PAGE = os.sysconf("SC_PAGE_SIZE")


def deviations(stage: Stage) -> list[Deviation]:
    """Returns what `check` and `diff` find on any node."""

    def look(node: str) -> list[Deviation]:
        found = []
        for command in ("check", "diff"):
            done = stage.world.run(node, [*NODEAGENT, command, "-o", "json"], check=False)
            if done.returncode:
                found.append(Deviation(time.monotonic(), node, f"{command}: {reason(done.stdout, done.stderr)}"))
        return found

    with ThreadPoolExecutor(max_workers=len(stage.nodes)) as pool:
        return [one for each in pool.map(look, stage.nodes) for one in each]


def reason(output: str, errors: str) -> str:
    """Returns the verdict of a command, and the rows that are the cause."""
    try:
        document = json.loads(output)
    except ValueError:
        return (errors or output).strip()[-400:]
    rows = [row for rows in document.values() if isinstance(rows, list) for row in rows]
    bad = [row for row in rows if str(row.get("result", "failed")).lower() == "failed"]
    return f"{document.get('verdict')} {json.dumps(bad)[:400]}"


def figures(stage: Stage) -> list[Figure]:
    """Measures every figure of ROOM in `laws`."""
    found = []
    for node in stage.nodes:
        at = time.monotonic()
        found += [Figure(at, node, name, value) for name, value in node_figures(stage, node)]
    at = time.monotonic()
    pid = stage.server_pid()
    return [
        *found,
        Figure(at, "control", "server memory", resident(pid)),
        Figure(at, "control", "server descriptors", entries(pid, "fd")),
    ]


def node_figures(stage: Stage, node: str) -> Iterator[tuple[str, float]]:
    """Yields name and value."""
    elements = affinity = chains = 0
    for family, table in TABLES:
        listed = json.loads(stage.world.run(node, ["nft", "-j", "list", "table", family, table]).stdout)["nftables"]
        for entry in listed:
            chains += "chain" in entry
            for kind in ("set", "map"):
                if kind in entry:
                    count = len(entry[kind].get("elem") or [])
                    if entry[kind]["name"] == AFFINITY:
                        affinity += count
                    elif entry[kind].get("map") == "verdict":
                        chains += count  # it leads to one, and is deleted with it
                    else:
                        elements += count
    yield "elements", elements
    yield "chains", chains
    yield "affinity", affinity
    yield "conntrack", len(connections(stage, node))
    pid = stage.agents[node].pid
    yield "agent memory", resident(pid)
    yield "agent descriptors", entries(pid, "fd")
    yield "agent threads", entries(pid, "task")
    try:
        names = stage.dns_process(node)
        yield "dns memory", resident(names)
        yield "dns descriptors", entries(names, "fd")
    except (LabError, OSError) as error:
        stage.deviations.append(Deviation(time.monotonic(), node, f"its DNS process: {error}"))


def connections(stage: Stage, node: str) -> list[str]:
    """Returns the tracked connections of a node, a line each. nf_conntrack_count also counts those that are over, until the kernel's
    collector comes by, which takes minutes where little happens."""
    return stage.world.run(node, ["conntrack", "-L"], check=False).stdout.splitlines()


def tracked(stage: Stage, node: str) -> str:
    """Returns how many tracked connections of a node are in which state, most first."""
    found = Counter(
        " ".join(line.split()[:1] + [word for word in line.split()[3:5] if word.isupper()])
        for line in connections(stage, node)
    )
    return ", ".join(f"{count} {state}" for state, count in found.most_common(6))


def resident(pid: int) -> float:
    """Bytes of memory of a process. Raises OSError if it has ended."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def entries(pid: int, what: str) -> int:
    """How many descriptors (`fd`) or threads (`task`) a process has. Raises OSError if it has ended."""
    return len(os.listdir(f"/proc/{pid}/{what}"))
