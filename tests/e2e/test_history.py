"""What happened while the agent could not see the API server is made up for, also when history does not reach back."""

import asyncio
import time
from pathlib import Path

import pytest

from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.store import Store, Window
from nodeagent.apiserver.storages import STORE_FILE
from tests.harness.api_cluster import ApiCluster, Tenant, all_answering, answered_by
from tests.harness.cluster import NODE
from tests.harness.links import Links

pytestmark = pytest.mark.slow

BACK_SECONDS = 3.0
"""From the return of the server to packets that follow it, where it was away for a few seconds: who found nobody for longer waits longer."""
HEALTHY_SECONDS = 3.2
"""A watch that lasts three seconds ends a series of failures, after which the agent does not hold itself back."""
REWRITTEN_SECONDS = BACK_SECONDS + 2 * 2.0
"""The same when its history is another one: twice the agent gives the server a second, and at most one of jitter."""


def forget_history(data: Path) -> None:
    """Compact the store of a server that does not run, so that no watch can go on where it was."""

    async def compact() -> None:
        async with Store(Log(str(data / STORE_FILE)), window=Window(seconds=-1), clock=time.time) as store:
            await store.compact()
            assert store.floor == store.revision

    asyncio.run(compact())


def in_kernel(cluster: ApiCluster, *addresses: str) -> list[str]:
    """Those of the addresses that the node's rules or its service interface still know."""
    shown = cluster.world.nft(NODE, "list ruleset")
    carried = Links(cluster.world, NODE).addresses("nodeagent0")
    return [address for address in addresses if f" {address} " in shown or address in carried]


def endpoints_settled(cluster: ApiCluster, tenant: Tenant) -> None:
    """Return when the slices of Service `new` have their endpoint and those of `goes` are gone."""

    def settled() -> bool:
        found = cluster.api.get(f"/apis/discovery.k8s.io/v1/namespaces/{tenant.name}/endpointslices")["items"]
        owners = {item["metadata"]["labels"]["kubernetes.io/service-name"]: item for item in found}
        return "goes" not in owners and all(len(item["endpoints"] or ()) == 1 for item in found) and "new" in owners

    cluster.server.wait_until(settled, "the controllers' work")


@pytest.fixture
def services(shaken: ApiCluster, shaken_tenant: Tenant) -> dict[str, tuple[str, ...]]:
    """Two Services with web-0 and web-1 that are followed, by name, from a server that has been there for a while."""
    for pod in ("web-0", "web-1"):
        shaken_tenant.run_pod(pod)
    for name in ("stays", "goes"):
        shaken_tenant.expose(name)
    found = {name: shaken_tenant.cluster_ips(name) for name in ("stays", "goes")}
    for name, addresses in found.items():
        shaken.agent.wait_until(answered_by(shaken, addresses, "web-0", "web-1"), name)
    time.sleep(HEALTHY_SECONDS)
    return found


@pytest.mark.parametrize("forgotten", [pytest.param(True, id="history gone"), pytest.param(False, id="history kept")])
def test_changes_during_an_outage_are_caught_up(
    shaken: ApiCluster, shaken_tenant: Tenant, services: dict[str, tuple[str, ...]], forgotten: bool
) -> None:
    """The server works for a while at an address of its host that nobody else sees."""
    printed = len(shaken.agent.lines)
    shaken.server.kill()
    shaken.start_server(listen="127.0.0.1")
    shaken.api.delete(shaken_tenant.path("services", "goes"))
    shaken_tenant.end_pod("web-1")
    shaken_tenant.expose("new")
    new = shaken_tenant.cluster_ips("new")
    endpoints_settled(shaken, shaken_tenant)
    shaken.server.kill()
    assert all_answering(shaken, services["goes"]) == {"web-0", "web-1"}
    if forgotten:
        forget_history(shaken.data)
    shaken.start_server()

    change = shaken.changed()
    change.shows(answered_by(shaken, services["stays"], "web-0"), "the endpoint gone", within=BACK_SECONDS)
    change.shows(answered_by(shaken, services["goes"], "timeout"), "the service gone", within=BACK_SECONDS)
    change.shows(answered_by(shaken, new, "web-0"), "the new service", within=BACK_SECONDS)
    assert not in_kernel(shaken, *services["goes"])
    if forgotten:
        shaken.agent.wait_for_line("listed resource=services", after=printed)
    listed = [line for line in shaken.agent.lines[printed:] if "listed resource=services" in line]
    assert len(listed) == forgotten, "a list is read again only when the watch cannot go on"


def test_a_server_that_lost_its_store_is_followed_into_its_new_one(
    shaken: ApiCluster, shaken_tenant: Tenant, services: dict[str, tuple[str, ...]]
) -> None:
    """The revisions of the new store are smaller than those the agent knows; nothing of the old one stays."""
    shaken.server.kill()
    for file in shaken.data.glob(f"{STORE_FILE}*"):
        file.unlink()
    shaken.start_server()
    shaken.declare_nodes()
    again = shaken.tenant("again")
    again.run_pod("web-2")
    address = services["stays"][0]
    again.expose("stays", ipFamilyPolicy="SingleStack", clusterIP=address)

    change = shaken.changed()
    change.shows(
        answered_by(shaken, (address,), "web-2"), "the new service at the old address", within=REWRITTEN_SECONDS
    )
    change.shows(answered_by(shaken, services["goes"], "timeout"), "the old service gone", within=REWRITTEN_SECONDS)
    assert not in_kernel(shaken, *services["goes"], services["stays"][1])
