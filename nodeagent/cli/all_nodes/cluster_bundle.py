"""Writes one archive with the bundle of each node. Each node's own `nodeagent bundle` writes and redacts its bundle."""

import asyncio
import io
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from nodeagent.cli.all_nodes.agent_pods import AgentPlace, ClusterLister
from nodeagent.cli.all_nodes.asking import Agents, NoAnswer
from nodeagent.cli.all_nodes.cluster_options import ClusterTarget
from nodeagent.cli.all_nodes.cluster_question import run_with_agents
from nodeagent.cli.bundle_archive import ALL_MEMBERS, LARGEST_BYTES, SUFFIX
from nodeagent.cli.exit_codes import FAILED, Failure
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.pod_exec import ExecResult

AT_ONCE = 4
"""Bundles in memory at the same time."""
LOG_LINES, LOG_BYTES = "5000", str(4 << 20)
_GZIP = b"\x1f\x8b"
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def bundle_cluster(
    cluster: ClusterTarget, output: Path, redacted: Callable[[bytes], bytes]
) -> tuple[int, dict[str, str]]:
    """Writes `output`, which must not exist. Returns the number of bundles, and {node: why its bundle is missing}.

    redacted: removes credentials from errors and logs before they are written. Raises Failure.
    """
    missing: dict[str, str] = {}
    asked: list[str] = []
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w|") as archive:

            def take(place: AgentPlace, came: ExecResult | NoAnswer) -> None:
                asked.append(place.node)
                if isinstance(came, ExecResult) and came.code == 0 and came.content.startswith(_GZIP):
                    _add(archive, f"{place.node}{SUFFIX}", came.content)
                    return
                missing[place.node] = redacted(_reason(came).encode()).decode(errors="replace")

            async def work(lister: ClusterLister, agents: Agents, places: Sequence[AgentPlace]) -> None:
                places = [one for one in places if _NODE.fullmatch(one.node)]
                await agents.ask(places, lambda _: ("bundle", "-"), take)
                for place in places:
                    if place.pod and place.node not in missing:
                        _add(
                            archive, f"{place.node}.log.txt", redacted(await _log(lister, cluster.namespace, place.pod))
                        )

            run_with_agents(cluster, work, at_once=AT_ONCE, limit=LARGEST_BYTES)
            about = {
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "nodes": sorted(asked),
                "missing": missing,
            }
            _add(archive, "about.json", json.dumps(about, indent=1, sort_keys=True).encode())
    except OSError as error:
        raise Failure(f"{output}: {error.strerror or error}", FAILED) from error
    except Failure:
        output.unlink(missing_ok=True)
        raise
    return len(asked) - len(missing), missing


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(f"{ALL_MEMBERS}/{name}")
    member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
    archive.addfile(member, io.BytesIO(content))


def _reason(came: ExecResult | NoAnswer) -> str:
    if isinstance(came, NoAnswer):
        return str(came)
    lines = came.errors.strip().splitlines()
    return lines[-1].removeprefix("nodeagent: ") if lines else f"it ended with {came.code} and wrote no bundle"


async def _log(lister: ClusterLister, namespace: str, pod: str) -> bytes:
    """Returns the log of an agent's pod (the pod itself cannot read it), or the reason why it could not be read."""
    query = (("container", "nodeagent"), ("tailLines", LOG_LINES), ("limitBytes", LOG_BYTES))
    try:
        async with asyncio.timeout(30.0):
            return await lister.get(f"/api/v1/namespaces/{namespace}/pods/{quote(pod, safe='')}/log", query)
    except (KubeError, TimeoutError) as error:
        return f"not read: {error}\n".encode()
