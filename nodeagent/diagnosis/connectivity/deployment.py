"""The namespace with everything in it: creates it, waits for it, deletes it."""

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from nodeagent.diagnosis.connectivity import objects, pod_program, stage
from nodeagent.diagnosis.connectivity.cluster import NAMESPACES, ClusterClient
from nodeagent.diagnosis.connectivity.pod_states import missing_pods, why_never_ready
from nodeagent.model.addresses import Family
from nodeagent.proxy.source.client import api_errors

Document = dict[str, Any]
POLL_SECONDS = 0.5
DELETE_ATTEMPTS = 5


class ConnectivityError(Exception):
    """The cluster cannot be tested; `str` is one line."""


class DeploymentPlan(Struct, frozen=True):
    """What to create. nodes: the Node objects. seconds: timeout until all pods run."""

    namespace: str
    image: str
    nodes: tuple[Mapping[str, Any], ...]
    seconds: float
    balancer_addresses: tuple[str, ...]
    external_ips: tuple[str, ...]

    @property
    def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.nodes]


class Deployment:
    """Creates a plan's objects in a cluster. Call `remove` even if `create` failed."""

    def __init__(self, cluster: ClusterClient, plan: DeploymentPlan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._path = f"{NAMESPACES}/{plan.namespace}"
        self._creating: asyncio.Task[Document] | None = None
        self._services: dict[str, stage.DeployedService] = {}
        self._refused: dict[str, str] = {}

    async def create(self) -> stage.DeployedObjects:
        """Creates everything and waits until the pods are ready. Raises ConnectivityError or KubeError."""
        document = objects.namespace(self._plan.namespace)
        # If it is interrupted here, `remove` must still find out whether there is a namespace to delete.
        self._creating = asyncio.create_task(self._cluster.create(NAMESPACES, document), name="create the namespace")
        await asyncio.shield(self._creating)
        await self._create_pods()
        families = await self._create_services()
        pods = await self._ready_pods()
        places = stage.pods_by_node(pods)
        nodes = tuple(stage.deployed_node(node, places) for node in self._plan.nodes)
        for number, node in enumerate(nodes):
            await self._cluster.patch(f"{self._path}/pods/{node.server.name}", objects.node_number(number))
        return stage.DeployedObjects(
            namespace=self._plan.namespace,
            nodes=nodes,
            services=self._services,
            families=families,
            outer_addresses={
                objects.BALANCER: stage.by_family(self._plan.balancer_addresses),
                objects.EXTERNAL_IP: stage.by_family(self._plan.external_ips),
            },
            resolver=stage.resolver_of(await self._resolv_conf(nodes[0]), self._plan.namespace),
            refused=self._refused,
        )

    async def remove(self, seconds: float) -> bool:
        """Deletes the namespace. Returns whether it is deleted within `seconds`. Raises KubeError if that fails."""
        if self._creating is None:
            return True
        await asyncio.wait([self._creating])
        if isinstance(self._creating.exception(), api_errors.StatusError):
            return True  # the server refused to create it
        return await delete_and_wait(self._cluster, self._plan.namespace, seconds)

    async def _create_pods(self) -> None:
        await self._cluster.create(
            f"{self._path}/configmaps", objects.program_config_map(inspect.getsource(pod_program))
        )
        path = f"/apis/apps/v1/namespaces/{self._plan.namespace}/daemonsets"
        for role in objects.ROLES:
            try:
                await self._cluster.create(path, objects.daemon_set(role, self._plan.image, self._plan.node_names))
            except api_errors.NotServedError as error:
                raise ConnectivityError(
                    f"{self._cluster.server} has no DaemonSets: no pods can run in this cluster"
                ) from error

    async def _create_services(self) -> tuple[Family, ...]:
        """Creates the Services. Returns the families of the cluster's Services."""
        families: tuple[Family, ...] = ()
        for document in objects.services(len(self._plan.nodes)):
            made = await self._create_service(document)
            families = families or stage.families_of(made)
        addresses = [
            address for family, address in stage.by_family(self._plan.external_ips).items() if family in families
        ]
        for document in objects.outer_services(addresses):
            try:
                await self._create_service(document)
            except (api_errors.ForbiddenError, api_errors.RejectedError) as error:
                self._refused[document["metadata"]["name"]] = str(error)
        await self._set_balancer_status(families)
        return families

    async def _create_service(self, document: Document) -> Document:
        made = await self._cluster.create(f"{self._path}/services", document)
        place = stage.service_place(made)
        self._services[place.name] = place
        return made

    async def _set_balancer_status(self, families: tuple[Family, ...]) -> None:
        if objects.BALANCER in self._refused:
            return
        addresses = [
            address for family, address in stage.by_family(self._plan.balancer_addresses).items() if family in families
        ]
        try:
            path = f"{self._path}/services/{objects.BALANCER}/status"
            await self._cluster.patch(path, objects.balancer_status(addresses))
        except (api_errors.ForbiddenError, api_errors.RejectedError) as error:
            self._refused[objects.BALANCER] = str(error)

    async def _ready_pods(self) -> list[Document]:
        missing = ["no pods"]
        try:
            async with asyncio.timeout(self._plan.seconds):
                while True:
                    pods = await self._cluster.items(f"{self._path}/pods", [("labelSelector", objects.SELECTOR)])
                    if reason := why_never_ready(pods):
                        raise ConnectivityError(reason)
                    if not (missing := missing_pods(pods, self._plan.node_names)):
                        return pods
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            line = f"the test pods do not run after {self._plan.seconds:g} s: {missing[0]}{more}"
            raise ConnectivityError(line) from error

    async def _resolv_conf(self, node: stage.DeployedNode) -> str:
        program = "import sys; sys.stdout.write(open('/etc/resolv.conf').read())"
        ran = await self._cluster.run(
            self._plan.namespace, node.client.name, objects.CONTAINER, ["python3", "-IS", "-c", program], seconds=30.0
        )
        if ran.code:
            raise ConnectivityError(f"pod {node.client.name} on {node.name}: python3 failed: {ran.errors.strip()}")
        return ran.output


async def delete_and_wait(cluster: ClusterClient, namespace: str, seconds: float) -> bool:
    """Deletes a namespace. Returns whether it is deleted within `seconds`. Raises KubeError if that fails."""
    for attempt in range(1, DELETE_ATTEMPTS + 1):
        try:
            await cluster.delete_namespace(namespace)
            break
        except api_errors.ServerUnreachableError:
            if attempt == DELETE_ATTEMPTS:
                raise
            await asyncio.sleep(attempt)
    try:
        async with asyncio.timeout(seconds):
            while True:
                if not await cluster.has_namespace(namespace):
                    return True
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return False
