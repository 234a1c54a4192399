"""One run: find nodes, deploy, try, ask why, and leave nothing behind."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.diagnosis.connectivity.address_cases import address_cases
from nodeagent.diagnosis.connectivity.agents import SELECTOR, ProxyPod, agents_of
from nodeagent.diagnosis.connectivity.cases import Case, Skipped
from nodeagent.diagnosis.connectivity.cluster import NAMESPACES, ClusterClient
from nodeagent.diagnosis.connectivity.deployment import ConnectivityError, Deployment, StagePlan, removed
from nodeagent.diagnosis.connectivity.matrix import Outcome, Report, outcomes, traces_wanted
from nodeagent.diagnosis.connectivity.name_cases import name_cases
from nodeagent.diagnosis.connectivity.objects import OWNER
from nodeagent.diagnosis.connectivity.policy_cases import policy_cases
from nodeagent.diagnosis.connectivity.rounds import CaseRunner, unreachable
from nodeagent.diagnosis.connectivity.stage import Stage, chosen_nodes
from nodeagent.proxy.source.client.api_errors import ForbiddenError, KubeError

MOST_TRACES = 30
AT_ONCE = 4
REMOVAL_SECONDS = 120.0

Say = Callable[[str], None]


class TrialOptions(Struct, frozen=True):
    """image: empty for that of the nodeagent which runs in the cluster, or `own_image`. nodes: how many at most. pod_seconds:
    until the pods run. settle_seconds: until what serves Services knows them. balancer_is_routed: whether the balancer's
    addresses were given, and so lead to the nodes."""

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
    """Raises ConnectivityError or KubeError when it cannot be tried. However it ends, its namespace is deleted."""
    agents = await _agents(cluster)
    nodes = chosen_nodes(await cluster.items("/api/v1/nodes"), wanted.nodes)
    if not nodes:
        raise ConnectivityError(f"{cluster.server}: no node is ready, so that no pod can run")
    image = wanted.image or next((agent.image for agent in agents.values()), wanted.own_image)
    name = f"{OWNER}-{wanted.suffix}"
    plan = StagePlan(name, image, tuple(nodes), wanted.pod_seconds, wanted.balancer_addresses, wanted.external_ips)
    deployment = Deployment(cluster, plan)
    try:
        say(f"namespace {name}: test pods with the image {image} on {', '.join(plan.node_names)}")
        stage = await deployment.create()
        return await _tried(cluster, await _seen_from_here(stage, wanted), wanted, agents, say)
    finally:
        await _remove(deployment, name, say)


async def _remove(deployment: Deployment, name: str, say: Say) -> None:
    """Not an error of its own: what was found is more than what is left."""
    try:
        if not await deployment.remove(REMOVAL_SECONDS):
            say(f"namespace {name} is still being deleted after {REMOVAL_SECONDS:g} s; the cluster goes on with it")
    except KubeError as error:
        say(f"namespace {name} is left, because it could not be deleted: {error}; try --cleanup")


async def remove_leftovers(cluster: ClusterClient, say: Say) -> bool:
    """Delete the namespaces of all runs; whether they are gone. Raises KubeError."""
    names = await cluster.own_namespaces()
    gone = await asyncio.gather(*(removed(cluster, name, REMOVAL_SECONDS) for name in names))
    for name, is_gone in zip(names, gone, strict=True):
        say(f"{NAMESPACES.rpartition('/')[2]}/{name} {'deleted' if is_gone else 'is still being deleted'}")
    if not names:
        say("there is nothing to remove")
    return all(gone)


async def _agents(cluster: ClusterClient) -> dict[str, ProxyPod]:
    """Node → its agent; nothing for somebody who may not look."""
    try:
        return agents_of(await cluster.items("/api/v1/pods", [("labelSelector", SELECTOR)]))
    except ForbiddenError:
        return {}


async def _seen_from_here(stage: Stage, wanted: TrialOptions) -> Stage:
    away = await unreachable(stage.nodes, stage.families)
    return msgspec.structs.replace(stage, unreachable=away, outer_is_routed=wanted.balancer_is_routed)


async def _tried(
    cluster: ClusterClient, stage: Stage, wanted: TrialOptions, agents: dict[str, ProxyPod], say: Say
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
    rounds: CaseRunner, failures: list[Outcome], agents: dict[str, ProxyPod]
) -> dict[Any, tuple[str, ...]]:
    """Of the connections that failed, on the nodes that have an agent."""
    limit = asyncio.Semaphore(AT_ONCE)
    wanted = [trace for trace in traces_wanted(failures, MOST_TRACES) if trace.node in agents]

    async def one(number: int) -> tuple[str, ...]:
        async with limit:
            return tuple(await rounds.trace(agents[wanted[number].node], wanted[number]))

    found = await asyncio.gather(*map(one, range(len(wanted))))
    return dict(zip(wanted, found, strict=True))
