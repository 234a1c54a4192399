"""Who gets an answer from the page of a lab, and who does not, at a real socket; there is no lab behind it."""

import asyncio
from pathlib import Path

import pytest

from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.lab_plan import Settings
from nodeagent.lab.lab_thread import Worker
from nodeagent.lab.page.page_server import PageServer

HERE = "127.0.0.1:{port}"
RIGHT = "Bearer {token}"


async def ask(page: PageServer, request: str, headers: dict[str, str]) -> tuple[int, str]:
    """Status and the beginning of what is answered; names in braces are the page's own."""
    place, _, token = page.address.partition("/#")
    port = place.rpartition(":")[2]
    lines = [f"{request} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "Connection: close"]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    async with asyncio.timeout(60):
        writer.write(("\r\n".join(lines) + "\r\n\r\n").format(port=port, token=token).encode(errors="surrogateescape"))
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        text = (await reader.readline()).decode()
    writer.close()
    return int(head.split()[1]), head + text


def answer(tmp_path: Path, request: str, headers: dict[str, str]) -> tuple[int, str]:
    async def run() -> tuple[int, str]:
        work = Worker()
        cluster = LiveCluster(Settings(nodes=1), LabDirectory(tmp_path, "lab"), print)
        try:
            async with PageServer(cluster, work) as page:
                return await ask(page, request, headers)
        finally:
            work.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        pytest.param("GET /", {"Host": HERE}, 200, id="the document needs no token"),
        pytest.param("GET /", {"Host": "localhost:{port}"}, 200, id="localhost"),
        pytest.param("GET /", {"Host": "evil.example:{port}"}, 403, id="a name that was made to mean 127.0.0.1"),
        pytest.param("GET /", {"Host": "127.0.0.1"}, 403, id="another port's"),
        pytest.param("GET /", {"Host": "127.0.0.1.:{port}"}, 403, id="a dot more"),
        pytest.param("GET /", {}, 400, id="no host"),
        pytest.param("GET /", {"Host": HERE, "Origin": "http://evil.example"}, 403, id="another page"),
        pytest.param("GET /api/events", {"Host": HERE}, 401, id="no token"),
        pytest.param("GET /api/events?{token}", {"Host": HERE}, 401, id="the token in the wrong place"),
        pytest.param("GET /api/events", {"Host": HERE, "Authorization": "Bearer x{token}"}, 401, id="another token"),
        pytest.param("GET /api/events", {"Host": HERE, "Authorization": "{token}"}, 401, id="no scheme"),
        pytest.param("GET /api/events", {"Host": HERE, "Authorization": "Bearer Ü"}, 401, id="not even ASCII"),
        pytest.param("GET /api/events", {"Host": HERE, "Authorization": "Bearer \udcff"}, 401, id="not even UTF-8"),
        pytest.param("POST /api/load/stop", {"Host": HERE, "Authorization": RIGHT}, 204, id="right"),
        pytest.param("POST /api/cut?node=node-1", {"Host": HERE}, 401, id="an order without token"),
        pytest.param(
            "POST /api/cut?node=node-1",
            {"Host": HERE, "Authorization": RIGHT, "Origin": "http://127.0.0.1:1"},
            403,
            id="an order of a page of another port",
        ),
        pytest.param(
            "POST /api/cut?node=node-1",
            {"Host": "evil.example:{port}", "Authorization": RIGHT, "Origin": "http://evil.example:{port}"},
            403,
            id="an order after rebinding",
        ),
        pytest.param(
            "POST /api/cut?node=node-1", {"Host": HERE, "Authorization": RIGHT, "Origin": "null"}, 403, id="a sandbox"
        ),
        pytest.param("GET /api/cut?node=node-1", {"Host": HERE, "Authorization": RIGHT}, 405, id="an order by GET"),
        pytest.param("POST /api/cut?node=node-9", {"Host": HERE, "Authorization": RIGHT}, 400, id="no such node"),
        pytest.param("POST /api/mend?node=node-1", {"Host": HERE, "Authorization": RIGHT}, 409, id="is not cut"),
        pytest.param("GET /etc/passwd", {"Host": HERE, "Authorization": RIGHT}, 404, id="nothing there"),
        pytest.param("GET /etc/passwd", {"Host": HERE}, 401, id="nothing there, and nobody may know"),
    ],
)
def test_who_may_ask_for_what(tmp_path: Path, request_line: str, headers: dict[str, str], status: int) -> None:
    assert answer(tmp_path, request_line, headers)[0] == status


def test_the_document_runs_only_its_own_script_and_holds_no_secret(tmp_path: Path) -> None:
    _, head = answer(tmp_path, "GET /", {"Host": HERE})
    assert "default-src 'none'; script-src 'sha256-" in head
    assert "connect-src 'self'" in head
    assert "frame-ancestors 'none'" in head
    assert "Access-Control" not in head


def test_http_modules_are_imported_only_on_the_first_request(tmp_path: Path) -> None:
    async def run() -> tuple[object, object]:
        work = Worker()
        cluster = LiveCluster(Settings(nodes=1), LabDirectory(tmp_path, "lab"), print)
        try:
            async with PageServer(cluster, work) as page:
                before = page.serving
                await ask(page, "GET /", {"Host": HERE})
                return before, page.serving
        finally:
            work.close()

    assert asyncio.run(run()) == (False, True)
