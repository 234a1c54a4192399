"""Which files the creation of a Service passes, from the HTTP request to the storage."""

import asyncio
import sys
from pathlib import Path

import aiohttp

from nodeagent.apiserver.api_server import ApiServer
from nodeagent.apiserver.server_settings import ServerSettings
from nodeagent.proxy.source.mirror import mirror_endpoints
from tests.harness.called_files import CalledFiles
from tests.harness.served_api import serving

HANDED_THROUGH = [
    "apiserver/api/handler.py",
    "apiserver/api/resource_verbs.py",
    "apiserver/machinery/registry.py",
    "apiserver/machinery/commits.py",
    "apiserver/machinery/planned.py",
    "apiserver/storage/store.py",
    "apiserver/storage/log.py",
]
MOST_ENTERED = 46
"""Files of which the request runs any function, until the write is handed to the storage. The first request of a second enters one more
than others: it writes the time as text."""


class Quiet:
    def ready(self, status: str) -> None: ...

    def stopping(self) -> None: ...


def way(directory: Path) -> CalledFiles:
    followed = CalledFiles(points={"Store.commit"}, end="Log.write", within=HANDED_THROUGH[0])

    def service(name: str) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}

    async def story() -> None:
        server = ApiServer(
            ServerSettings(port=0, data_dir=directory, insecure=True), mirror=mirror_endpoints, notifier=Quiet()
        )
        async with serving(server), aiohttp.ClientSession() as client:
            url = f"http://127.0.0.1:{server.port}/api/v1/namespaces/default/services"
            async with client.post(url, json=service("first")) as answer:
                assert answer.status == 201
            sys.setprofile(followed)
            try:
                async with client.post(url, json=service("second")) as answer:
                    assert answer.status == 201
            finally:
                sys.setprofile(None)

    asyncio.run(story())
    return followed


def test_a_write_is_handed_through_few_files(tmp_path: Path) -> None:
    found = way(tmp_path)
    assert list(found.handed_through) == HANDED_THROUGH
    assert len(found.entered) <= MOST_ENTERED


def test_the_document_names_the_files_in_order() -> None:
    text = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    section = text.partition("## A request on its way")[2].partition("\n## ")[0]
    assert " → ".join(f"`{file}`" for file in HANDED_THROUGH) in " ".join(section.split())
