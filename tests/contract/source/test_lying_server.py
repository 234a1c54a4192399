"""An API server of which one answer in ten is a lie: in the end the store holds what is true, and nothing else."""

import asyncio
import random
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nodeagent.apiserver.api_server import ApiServer
from nodeagent.apiserver.server_settings import ServerSettings
from nodeagent.model.backoff import Backoff
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.source.api_source import ApiServerSource
from nodeagent.proxy.source.client.api_client import ApiClient, Timeouts
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.mirror import mirror_endpoints
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pace import Pace, Timing
from tests.harness.effort import SEED, examples
from tests.harness.lying_api_proxy import LyingApiProxy
from tests.harness.served_api import serving

SERVICES = "/api/v1/namespaces/default/services"
PATIENCE = 60.0
TIMING = Timing(
    watch_min=1.0,
    watch_max=2.0,
    grace=0.5,
    initial_silence=0.5,
    backoff=Backoff(first_seconds=0.02, longest_seconds=0.2),
    spacing=0.02,
)
CHANGES = 30


class Quiet:
    def ready(self, status: str) -> None: ...

    def stopping(self) -> None: ...

    def service_changed(self, key: ObjectKey) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


class Truth:
    """Services of the server, by name, with their port; changed at random and without a lie."""

    def __init__(self, session: aiohttp.ClientSession, url: str, chance: random.Random) -> None:
        self.ports: dict[str, int] = {}
        self._session = session
        self._url = url
        self._chance = chance

    async def change(self) -> None:
        name, port = f"s{self._chance.randrange(8)}", self._chance.randrange(1, 60000)
        path = f"{self._url}{SERVICES}"
        if name in self.ports and self._chance.random() < 0.4:
            del self.ports[name]
            await self._ask("DELETE", f"{path}/{name}")
            return
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": port, "name": "main"}]}}
        if name in self.ports:
            patch = {"Content-Type": "application/merge-patch+json"}
            await self._ask("PATCH", f"{path}/{name}", json=body, headers=patch)
        else:
            await self._ask("POST", path, json=body)
        self.ports[name] = port

    async def _ask(self, method: str, url: str, **what: Any) -> None:
        async with self._session.request(method, url, **what) as answer:
            assert answer.status < 300, await answer.text()


def held(store: ClusterStore) -> dict[str, int]:
    found = {key.name: service for key, service in store.services.items() if key.namespace == "default"}
    return {
        name: port.port for name, service in found.items() for port in service.spec.ports or () if name != "kubernetes"
    }


@pytest.mark.parametrize("seed", range(examples(1)))
def test_in_the_end_the_store_holds_what_is_true(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        settings = ServerSettings(port=0, data_dir=tmp_path, advertise_address="192.168.77.1")
        async with serving(ApiServer(settings, mirror=mirror_endpoints, notifier=Quiet())) as server:
            assert server.credentials is not None
            trust = ssl.create_default_context(cafile=str(server.credentials.authority))
            token, url = server.credentials.admin_token, f"https://127.0.0.1:{server.port}"
            headers = {"Authorization": f"Bearer {token}"}
            async with (
                LyingApiProxy(url, token, trust, seed + SEED).listening() as proxy,
                aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=trust)) as session,
                ApiClient(
                    ClusterAccess(proxy.url, TlsTrust(), FixedCredential()), timeouts=Timeouts(5.0, 1.0, 1.0)
                ) as client,
            ):
                store = ClusterStore(Quiet())
                source = ApiServerSource(client, store, node_name="n1", pace=Pace(random.random, asyncio.sleep, TIMING))
                following = asyncio.create_task(source.run())
                truth = Truth(session, url, random.Random(seed))
                for _ in range(CHANGES):
                    await truth.change()
                    await asyncio.sleep(0.02)
                async with asyncio.timeout(PATIENCE):
                    while held(store) != truth.ports:  # the store has no event for this
                        assert not following.done()
                        await asyncio.sleep(0.02)
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                assert proxy.counts, "else nothing is shown"

    asyncio.run(main())
