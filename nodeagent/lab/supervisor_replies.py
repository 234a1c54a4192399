"""The supervisor's replies to each request, from the cluster it holds."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator

from nodeagent.lab import lab_status
from nodeagent.lab import supervisor_messages as messages
from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.lab_thread import Work
from nodeagent.lab.load_generator import ClusterLoad, check_rate, find_service, paths_to, stopped_at_exit
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.trial import carry_out
from nodeagent.model.addresses import Protocol

FOLLOW_EVERY = 0.2


class Replies:
    """Replies about one cluster; everything that blocks is run by `work`."""

    def __init__(self, cluster: LiveCluster, work: Work, directory: LabDirectory) -> None:
        self._cluster = cluster
        self._work = work
        self._directory = directory
        self._started = time.monotonic()

    def to(self, request: messages.Request) -> AsyncGenerator[messages.Reply, None]:
        """Returns all replies; closing the generator ends the request. Raises LabError; ValueError for an invalid
        request."""
        match request:
            case messages.GetStatus():
                return self._status()
            case messages.Locate():
                return self._locate(request)
            case messages.GetLog():
                return self._log(request)
            case messages.StartLoad():
                return self._load(request)
            case messages.Connect():
                return self._connect(request)
            case messages.InjectFault():
                return carry_out(request, self._cluster, self._work, self._cluster.faults)
            case messages.TakeDown():
                raise LabError("TakeDown is answered by the supervisor itself")

    async def _status(self) -> AsyncGenerator[messages.Reply, None]:
        cluster = self._cluster

        def look() -> messages.Status:
            return messages.Status(
                cluster.settings,
                os.getpid(),
                time.monotonic() - self._started,
                lab_status.api_state(cluster),
                lab_status.control_statuses(cluster),
                lab_status.node_statuses(cluster),
                lab_status.pod_statuses(cluster),
                lab_status.service_statuses(cluster),
                tuple(cluster.faults),
            )

        yield await self._work(look)

    async def _locate(self, request: messages.Locate) -> AsyncGenerator[messages.Reply, None]:
        namespace = await self._work(lambda: self._cluster.namespace_of(request.member))
        is_pod = request.member in self._cluster.pods or request.member in self._cluster.callers
        resolv_conf = self._directory.resolv_conf if is_pod and self._cluster.settings.dns else ""
        yield messages.MemberPlace(namespace, self._cluster.kubeconfig_of(request.member), str(resolv_conf))
        await asyncio.Event().wait()

    async def _connect(self, request: messages.Connect) -> AsyncGenerator[messages.Reply, None]:
        def connect() -> messages.Connected:
            self._cluster.namespace_of(request.member)
            member, protocol = self._cluster.world[request.member], Protocol[request.protocol]
            began = time.monotonic()
            survey = member.ask(request.address, request.port, protocol, count=request.count, timeout=request.timeout)
            failures = {failure.value: count for failure, count in survey.failures.items()}
            return messages.Connected(
                dict(survey.names), failures, tuple(sorted(survey.peers)), time.monotonic() - began
            )

        yield await self._work(connect)

    async def _load(self, request: messages.StartLoad) -> AsyncGenerator[messages.Reply, None]:
        cluster = self._cluster
        check_rate(request.rate)

        def begin() -> ClusterLoad:
            ways = paths_to(cluster, find_service(cluster, request.service), request.protocol)
            return ClusterLoad(cluster, ways, request.protocol, request.rate, request.timeout)

        async with stopped_at_exit(self._work, begin) as load:
            while True:
                await asyncio.sleep(request.every)
                yield await self._work(load.sample)

    async def _log(self, request: messages.GetLog) -> AsyncGenerator[messages.Reply, None]:
        control = self._cluster.control
        processes = self._cluster.agents | (control.processes if control is not None else {})
        process = processes.get(request.member)
        if process is None:
            raise LabError(f"{request.member!r} has no log; there are logs of {', '.join(processes)}")
        seen = max(0, len(process.lines) - request.count)
        while True:
            lines = process.lines[seen:]
            seen += len(lines)
            yield messages.LogLines(lines)
            if not request.follow:
                return
            await asyncio.sleep(FOLLOW_EVERY)
