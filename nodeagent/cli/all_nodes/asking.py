"""Runs a command beside the agent of each node, with time limits for one node and for all."""

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Sequence

from nodeagent.cli.all_nodes.agent_pods import AgentPlace
from nodeagent.diagnosis.connectivity.agents import CONTAINER
from nodeagent.lab.caller import ask
from nodeagent.lab.directory import LabDirectory, base_directory
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.supervisor_messages import Locate, MemberPlace
from nodeagent.proxy.source.client.api_errors import ForbiddenError, KubeError
from nodeagent.proxy.source.pod_exec import OUTPUT_LIMIT_BYTES, ChannelClient, ExecResult, run_in_pod

AT_ONCE = 32
"""Nodes asked in parallel. Each needs a stream through the API server and a process beside the agent."""


class NoAnswer(Exception):
    """A node gave no answer; the message is one line: the reason, and what to do."""


class Agents:
    """The agents of a cluster. namespace: of their pods. seconds: time limit for one; within: for all, from the start of
    `ask`. limit: bytes that a command may print."""

    def __init__(
        self,
        client: ChannelClient,
        namespace: str,
        *,
        within: float,
        seconds: float,
        at_once: int = AT_ONCE,
        limit: int = OUTPUT_LIMIT_BYTES,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._within = within
        self._seconds = min(seconds, within)
        self._limit = limit
        self._slots = asyncio.Semaphore(at_once)

    async def ask(
        self,
        places: Collection[AgentPlace],
        command: Callable[[AgentPlace], Sequence[str]],
        take: Callable[[AgentPlace, ExecResult | NoAnswer], None],
    ) -> None:
        """Runs `command` at each place. Calls `take` with each result as it arrives; NoAnswer after the time limit."""
        left = {place.node: place for place in places}

        async def one(place: AgentPlace) -> None:
            async with self._slots:
                try:
                    result: ExecResult | NoAnswer = await self._run(place, command(place))
                except NoAnswer as error:
                    result = error
            del left[place.node]
            take(place, result)

        try:
            async with asyncio.timeout(self._within), asyncio.TaskGroup() as group:
                for place in places:
                    group.create_task(one(place), name=f"ask {place.node}")
        except TimeoutError:
            why = f"no answer within {self._within:g} s for all nodes: --within SECONDS gives them longer"
            for place in left.values():
                take(place, NoAnswer(why))

    async def _run(self, place: AgentPlace, command: Sequence[str]) -> ExecResult:
        """Runs a command in the agent's pod or lab. Raises NoAnswer."""
        if place.why:
            raise NoAnswer(place.why)
        if place.lab:
            return await self._in_lab(place, command)
        try:
            words = ["nodeagent", *command]
            return await run_in_pod(
                self._client, self._namespace, place.pod, CONTAINER, words, seconds=self._seconds, limit=self._limit
            )
        except ForbiddenError as error:
            may = f"kubectl auth can-i create pods --subresource=exec -n {self._namespace}"
            raise NoAnswer(f"you may not run commands in pod {place.pod} ({error}): {may}") from error
        except KubeError as error:
            raise NoAnswer(str(error)) from error

    async def _in_lab(self, place: AgentPlace, command: Sequence[str]) -> ExecResult:
        """Runs a command in the network namespace of a lab's node on this machine. Raises NoAnswer."""
        directory = LabDirectory(base_directory(os.environ), place.lab)
        try:
            member = await asyncio.to_thread(ask, directory, Locate(place.node), MemberPlace, timeout=self._seconds)
        except (LabError, ValueError, OSError) as error:
            raise NoAnswer(f"it belongs to lab {place.lab}, and {error}") from error
        argv = member.command([sys.executable, "-m", "nodeagent", *command])
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise NoAnswer(f"{argv[0]}: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._seconds):
                output, errors = await process.communicate()
        except TimeoutError as error:
            raise NoAnswer(f"no answer in {self._seconds:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return ExecResult(process.returncode or 0, output, errors.decode(errors="replace"))
