"""One run: finds nodes, deploys, runs the cases, traces failures, and removes everything."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.diagnosis.connectivity.address_cases import address_cases
from nodeagent.diagnosis.connectivity.agents import SELECTOR, ProxyPod, agents_of
from nodeagent.diagnosis.connectivity.cases import Case, Skipped
from nodeagent.diagnosis.connectivity.cluster import NAMESPACES, ClusterClient
from nodeagent.diagnosis.connectivity.deployment import ConnectivityError, Deployment, DeploymentPlan, delete_and_wait
from nodeagent.diagnosis.connectivity.matrix import CaseOutcome, Report, outcomes, traces_wanted
from nodeagent.diagnosis.connectivity.name_cases import name_cases
from nodeagent.diagnosis.connectivity.objects import OWNER
from nodeagent.diagnosis.connectivity.policy_cases import policy_cases
from nodeagent.diagnosis.connectivity.rounds import CaseRunner, unreachable
from nodeagent.diagnosis.connectivity.stage import DeployedObjects, chosen_nodes
from nodeagent.proxy.source.client.api_errors import ForbiddenError, KubeError

MOST_TRACES = 30
AT_ONCE = 4
REMOVAL_SECONDS = 120.0

Say = Callable[[str], None]


class TrialOptions(Struct, frozen=True):
    """The options of `nodeagent connectivity`.
    image: empty for that of the nodeagent in the cluster, or `own_image`. nodes: at most this many. pod_seconds:
    timeout until the pods run. settle_seconds: timeout until the proxies know the Services. balancer_is_routed: whether
    the balancer's addresses were given, so that they lead to the nodes."""

    suffix: str
    image: str
    own_image: str
    nodes: int
    pod_seconds: float
    settle_seconds: float
    balancer_addresses: tuple[str, ...]
    external_ips: tuple[str, ...]
    balancer_is_routed: bool = False


async def try_everything(cluster: ClusterClient, wanted: TrialOptions, say: Say) -> Report:
    """Runs all cases. Raises ConnectivityError or KubeError if that is not possible. The namespace is always deleted."""
    agents = await _agents(cluster)
    nodes = chosen_nodes(await cluster.items("/api/v1/nodes"), wanted.nodes)
    if not nodes:
        raise ConnectivityError(f"{cluster.server}: no node is ready, so that no pod can run")
    image = wanted.image or next((agent.image for agent in agents.values()), wanted.own_image)
    name = f"{OWNER}-{wanted.suffix}"
    plan = DeploymentPlan(name, image, tuple(nodes), wanted.pod_seconds, wanted.balancer_addresses, wanted.external_ips)
    deployment = Deployment(cluster, plan)
    try:
        say(f"namespace {name}: test pods with the image {image} on {', '.join(plan.node_names)}")
        stage = await deployment.create()
        return await _run_cases(cluster, await _with_reachability(stage, wanted), wanted, agents, say)
    finally:
        await _remove(deployment, name, say)


async def _remove(deployment: Deployment, name: str, say: Say) -> None:
    """Deletes the namespace and reports failures only as text: the results are more important."""
    try:
        if not await deployment.remove(REMOVAL_SECONDS):
            say(f"namespace {name} is still being deleted after {REMOVAL_SECONDS:g} s; the cluster continues with it")
    except KubeError as error:
        say(f"namespace {name} is left, because it could not be deleted: {error}; try --cleanup")


async def remove_leftovers(cluster: ClusterClient, say: Say) -> bool:
    """Deletes the namespaces of all runs. Returns whether they are deleted. Raises KubeError."""
    names = await cluster.own_namespaces()
    gone = await asyncio.gather(*(delete_and_wait(cluster, name, REMOVAL_SECONDS) for name in names))
    for name, is_gone in zip(names, gone, strict=True):
        say(f"{NAMESPACES.rpartition('/')[2]}/{name} {'deleted' if is_gone else 'is still being deleted'}")
    if not names:
        say("there is nothing to remove")
    return all(gone)


async def _agents(cluster: ClusterClient) -> dict[str, ProxyPod]:
    """Returns the agent of each node; empty if the user may not list pods."""
    try:
        return agents_of(await cluster.items("/api/v1/pods", [("labelSelector", SELECTOR)]))
    except ForbiddenError:
        return {}


async def _with_reachability(stage: DeployedObjects, wanted: TrialOptions) -> DeployedObjects:
    away = await unreachable(stage.nodes, stage.families)
    return msgspec.structs.replace(stage, unreachable=away, outer_is_routed=wanted.balancer_is_routed)


async def _run_cases(
    cluster: ClusterClient, stage: DeployedObjects, wanted: TrialOptions, agents: dict[str, ProxyPod], say: Say
) -> Report:
    cases, skipped = _split((*address_cases(stage), *policy_cases(stage), *name_cases(stage)))
    rounds = CaseRunner(cluster, stage.namespace)
    say(f"{len(cases)} cases; waiting for the Services to be served, at most {wanted.settle_seconds:g} s")
    await rounds.settle(cases, wanted.settle_seconds)
    say("every case once")
    ended = outcomes(cases, await rounds.run(cases))
    return Report(ended, skipped, await _traces(rounds, [one for one in ended if one.happened], agents))


def _split(found: Iterable[Case | Skipped]) -> tuple[tuple[Case, ...], tuple[Skipped, ...]]:
    cases: list[Case] = []
    skipped: list[Skipped] = []
    for one in found:
        if isinstance(one, Case):
            cases.append(one)
        else:
            skipped.append(one)
    return tuple(cases), tuple(skipped)


async def _traces(
    rounds: CaseRunner, failures: list[CaseOutcome], agents: dict[str, ProxyPod]
) -> dict[Any, tuple[str, ...]]:
    """Returns the traces of the failed connections on nodes with an agent."""
    limit = asyncio.Semaphore(AT_ONCE)
    wanted = [trace for trace in traces_wanted(failures, MOST_TRACES) if trace.node in agents]

    async def one(number: int) -> tuple[str, ...]:
        async with limit:
            return tuple(await rounds.trace(agents[wanted[number].node], wanted[number]))

    found = await asyncio.gather(*map(one, range(len(wanted))))
    return dict(zip(wanted, found, strict=True))
