"""Runs cases: each source gets all its requests at once, and all sources work in parallel."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from nodeagent.diagnosis.connectivity.agents import CONTAINER as AGENT_CONTAINER
from nodeagent.diagnosis.connectivity.agents import ProxyPod, trace_command
from nodeagent.diagnosis.connectivity.cases import Case, Trace
from nodeagent.diagnosis.connectivity.cluster import ClusterClient
from nodeagent.diagnosis.connectivity.judgement import difference
from nodeagent.diagnosis.connectivity.objects import CONTAINER, PROGRAM_PATH
from nodeagent.diagnosis.connectivity.pod_program import answers_of
from nodeagent.diagnosis.connectivity.requests import Request, RequestBatch, RequestResult
from nodeagent.diagnosis.connectivity.stage import DeployedNode
from nodeagent.model.addresses import Family, family_of
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.pod_exec import PodExecError
from nodeagent.wire.unreadable import UNREADABLE

ROUND_SECONDS = 90.0
START_SECONDS = 30.0
"""Time for the program to start, in addition to its requests."""
TRACE_SECONDS = 30.0
PAUSE_SECONDS = 1.0
KUBELET_PORT = 10250
REACH_SECONDS = 2.0

_results = msgspec.json.Decoder(list[RequestResult])


class CaseRunner:
    """Runs the cases of one namespace."""

    def __init__(self, cluster: ClusterClient, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    async def settle(self, cases: Sequence[Case], seconds: float) -> None:
        """Repeats failing cases for at most `seconds` or one round, until the proxies know the Services."""
        left = [case for case in cases if not case.late]
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while left and clock() < end:
            results = await self.run(left)
            left = [case for case, result in zip(left, results, strict=True) if difference(case.expected, result)]
            await asyncio.sleep(PAUSE_SECONDS if left else 0)

    async def run(self, cases: Sequence[Case]) -> list[RequestResult]:
        """Returns the result of each case, in their order. If a source is unreachable, all its results have the reason."""
        by_pod: defaultdict[str, list[int]] = defaultdict(list)
        for number, case in enumerate(cases):
            by_pod[case.source.pod].append(number)
        results = [RequestResult(error="not run")] * len(cases)
        async with asyncio.TaskGroup() as group:
            for pod, numbers in by_pod.items():
                asked = tuple(cases[number].request for number in numbers)
                group.create_task(self._fill(results, numbers, pod, asked), name=f"requests of {pod or 'this machine'}")
        return results

    async def _fill(
        self, results: list[RequestResult], numbers: list[int], pod: str, requests: tuple[Request, ...]
    ) -> None:
        try:
            found = await (self._in_pod(pod, requests) if pod else _here(requests))
        except KubeError as error:
            found = [RequestResult(error=f"the program in the pod gave no result: {error}")] * len(requests)
        for number, result in zip(numbers, found, strict=True):
            results[number] = result

    async def _in_pod(self, pod: str, requests: tuple[Request, ...]) -> list[RequestResult]:
        command = ["python3", "-IS", PROGRAM_PATH, "ask"]
        asked = msgspec.json.encode(RequestBatch(requests, ROUND_SECONDS)) + b"\n"
        seconds = ROUND_SECONDS + START_SECONDS
        ran = await self._cluster.run(self._namespace, pod, CONTAINER, command, stdin=asked, seconds=seconds)
        try:
            found = _results.decode(ran.output.encode())
        except UNREADABLE as error:
            raise PodExecError(f"exit code {ran.code}: {ran.errors.strip()[-300:] or error}") from error
        if len(found) != len(requests):
            raise PodExecError(f"{len(found)} results for {len(requests)} requests")
        return found

    async def trace(self, agent: ProxyPod, trace: Trace) -> list[str]:
        """Returns the lines of the node's agent about a connection, or a line with the reason for a failure."""
        if not trace.source:
            trace = msgspec.structs.replace(trace, source=_own_address(trace.host))
        try:
            ran = await self._cluster.run(
                agent.namespace, agent.pod, AGENT_CONTAINER, trace_command(trace), seconds=TRACE_SECONDS
            )
        except KubeError as error:
            return [f"no trace: {error}"]
        return (ran.output.rstrip() or f"no trace: {ran.errors.strip()}").splitlines()


async def _here(requests: tuple[Request, ...]) -> list[RequestResult]:
    asked = msgspec.to_builtins(requests)
    return msgspec.convert(await asyncio.to_thread(answers_of, list(asked), ROUND_SECONDS), list[RequestResult])


def _own_address(host: str) -> str:
    """Returns this machine's source address towards a host; no packet is sent."""
    with socket.socket(family_of(host).socket_family, socket.SOCK_DGRAM) as client:
        client.connect((host, KUBELET_PORT))
        address: str = client.getsockname()[0]
        return address


async def unreachable(nodes: Sequence[DeployedNode], families: Sequence[Family]) -> dict[Family, str]:
    """Returns the families in which this machine does not reach every node, and why: a node is reached if it answers at
    the kubelet's port, also with a refusal."""
    found = {}
    for family in families:
        reasons = await asyncio.gather(*(_unreached(node, family) for node in nodes))
        if reason := next(filter(None, reasons), ""):
            found[family] = reason
    return found


async def _unreached(node: DeployedNode, family: Family) -> str:
    address = node.addresses.get(family)
    if address is None:
        return f"node {node.name} has no {family.value} address"
    try:
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(address, KUBELET_PORT)
            writer.close()
    except ConnectionRefusedError:
        return ""
    except TimeoutError:
        return f"this machine does not reach node {node.name}: {address} does not answer at port {KUBELET_PORT}"
    except OSError as error:
        return f"this machine does not reach node {node.name}: {address}: {error.strerror or error}"
    return ""
