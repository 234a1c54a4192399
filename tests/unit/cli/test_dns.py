"""`nodeagent dns`: what a name is answered, and why."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nodeagent.cli import dns as command
from nodeagent.cli.dns import dns_command
from nodeagent.cli.names_objects import Objects
from nodeagent.names.feed.feed_messages import Begin, End, Put, Settings
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.upstream.upstream_address import parse_server
from nodeagent.names.zone.lookup import ZoneSettings
from nodeagent.names.zone.service_names import names_of
from nodeagent.wire.dns.codes import SMALLEST_UDP_LIMIT, RecordType
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.query import read_query
from tests.harness.dns.reference import HERE, RecordedObjects

READ_KINDS = ("Service", "EndpointSlice")


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded objects as a directory of manifests."""
    directory = tmp_path_factory.mktemp("manifests")
    items = json.loads((HERE / "served.json").read_text())["items"]
    kept = [item for item in items if item["kind"] in READ_KINDS]
    (directory / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": kept}))
    return directory


@pytest.fixture(autouse=True)
def nobody_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "DEFAULT_SOCKET", tmp_path / "agent.sock")
    monkeypatch.setattr(command, "listening_places", tuple)
    monkeypatch.delenv("KUBECONFIG", raising=False)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(dns_command, list(map(str, arguments)))


@pytest.mark.parametrize(
    ("arguments", "code", "lines"),
    [
        pytest.param(
            ["web.shop"],
            0,
            [
                "web.shop.svc.cluster.local. A: NOERROR ",
                "  web.shop.svc.cluster.local. 30 IN A 10.96.1.1",
                "web.shop.svc.cluster.local. AAAA: NOERROR ",
                "Service shop/web: its ClusterIPs 10.96.1.1; its endpoints do not matter",
            ],
            id="a ClusterIP",
        ),
        pytest.param(
            ["db.shop.svc", "A"],
            0,
            [
                "Service shop/db (headless): the ready endpoints of its EndpointSlices",
                "EndpointSlice shop/db-a (IPv4; ports: pg TCP 5432)",
                "  used     10.244.1.31 (db-0)",
                "  left out 10.244.1.33 (db-2): not ready",
            ],
            id="a headless Service",
        ),
        pytest.param(
            ["d1.drain.shop.svc.cluster.local.", "A"],
            1,
            [
                "  left out 10.244.1.51 (d0): its name is not d1",
                "  left out 10.244.1.52 (d1): not ready, though serving",
            ],
            id="one endpoint",
        ),
        pytest.param(
            ["_http._tcp.db.shop.svc", "SRV"],
            1,
            ["EndpointSlice shop/db-a (IPv4; ports: pg TCP 5432)", "  left out: no port http by tcp"],
            id="an invalid port",
        ),
        pytest.param(
            ["db.apps"],
            1,
            ["there is no Service apps/db", "  db is in other namespaces: shop"],
            id="another namespace",
        ),
        pytest.param(
            ["10.96.1.1"],
            0,
            ["1.1.96.10.in-addr.arpa. PTR: NOERROR ", "10.96.1.1 is a ClusterIP of Service shop/web"],
            id="an address",
        ),
        pytest.param(
            ["10.244.1.31"],
            0,
            ["  31.1.244.10.in-addr.arpa. 30 IN PTR db-0.db.shop.svc.cluster.local."],
            id="an endpoint's address",
        ),
        pytest.param(
            ["192.0.2.7"],
            1,
            ["192.0.2.7 is neither a ClusterIP nor a ready endpoint of ours: asked upstream"],
            id="foreign",
        ),
        pytest.param(
            ["www.example.com"],
            1,
            ["www.example.com. is in none of our zones (cluster.local): asked upstream"],
            id="outside",
        ),
        pytest.param(["nowhere.svc"], 1, ["namespace nowhere does not exist"], id="a namespace"),
        pytest.param(["1-2-3-4.shop.pod", "A"], 0, ["  1-2-3-4.shop.pod.cluster.local. 30 IN A 1.2.3.4"], id="a pod"),
        pytest.param(
            ["dns-version.cluster.local.", "txt"],
            0,
            ['  dns-version.cluster.local. 28800 IN TXT "1.1.0"'],
            id="the version",
        ),
    ],
)
def test_a_name_and_why(manifests: Path, arguments: list[str], code: int, lines: list[str]) -> None:
    result = call(*arguments, "--manifests", manifests)
    assert result.exit_code == code
    printed = [line.replace(f"({manifests})", "") for line in result.stdout.splitlines()]
    assert [line for line in lines if line not in printed] == []


@pytest.mark.parametrize(
    ("pods", "address", "records", "why"),
    [
        pytest.param(
            "insecure", "1-2-3-5", 1, "with pods insecure, the name exists even if there is no such pod", id="insecure"
        ),
        pytest.param("verified", "1-2-3-4", 1, "with pods verified, and one runs in shop", id="one that runs"),
        pytest.param("verified", "1-2-3-5", 0, "with pods verified, and none runs in shop", id="one that does not"),
        pytest.param("disabled", "1-2-3-4", 0, "with pods disabled, pods have no names", id="disabled"),
    ],
)
def test_an_agent_s_pods_are_answered_as_it_is_configured(pods: str, address: str, records: int, why: str) -> None:
    recorded = RecordedObjects()
    settings = ZoneSettings(zones=("cluster.local",), pods=pods)
    objects = Objects(recorded, recorded.namespaces, settings, "an agent", [("1.2.3.4", ("shop",))])
    name = from_text(f"{address}.shop.pod.cluster.local.")
    reply = objects.answer(name, RecordType.A)
    assert reply is not None
    assert (len(reply.records), reply.source) == (records, "an agent")
    assert [line.partition("; ")[2] for line in objects.explain(name)] == [why]


def test_a_namespace_without_services_exists_where_manifests_say_so(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(
        "{apiVersion: v1, kind: Namespace, metadata: {name: empty}}\n---\n"
        "{apiVersion: batch/v1, kind: Job, metadata: {name: x, namespace: jobs}}\n"
    )
    for namespace, rcode in (("empty", "NOERROR"), ("jobs", "NOERROR"), ("nowhere", "NXDOMAIN")):
        said = call(f"{namespace}.svc.cluster.local.", "A", "--manifests", tmp_path).stdout
        assert said.startswith(f"{namespace}.svc.cluster.local. A: {rcode} "), said


def test_json_has_the_answers_and_why(manifests: Path) -> None:
    document = json.loads(call("web.shop", "A", "--manifests", manifests, "-o", "json").stdout)
    assert document["name"] == "web.shop.svc.cluster.local."
    assert document["answers"][0]["records"] == ["web.shop.svc.cluster.local. 30 IN A 10.96.1.1"]
    assert len(document["why"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["web"], 2, "no DNS process is here"),
        (["a..b", "--manifests", "/"], 2, "a label has 1 to 63 bytes"),
        (["web", "NOTHING", "--manifests", "/"], 2, "unknown type 'NOTHING'"),
        (["web", "--server", "here"], 2, "'here' has no IP address"),
        (["web", "--manifests", "/nonexistent"], 2, "manifest directory /nonexistent"),
        (["web", "--kubeconfig", "/nonexistent"], 2, "kubeconfig /nonexistent"),
    ],
)
def test_a_name_that_cannot_be_answered_is_one_line(arguments: list[str], code: int, text: str) -> None:
    result = call(*arguments)
    assert result.exit_code == code
    assert len(result.stderr.splitlines()) == 1
    assert text in result.stderr


@pytest.fixture
def server() -> Iterator[str]:
    """A server with other objects than the manifests: of shop/web only."""
    objects = RecordedObjects()
    fed = ReceivedState(Settings())
    web = next(one for key, one in objects.services.items() if str(key) == "shop/web")
    old = names_of(web, ())
    for message in (Begin(), Put((old,), 1), End(1)):
        fed.take(message)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                packet, peer = sock.recvfrom(4096)
                if not packet:
                    return
                answer = fed.answers.answer(read_query(packet), SMALLEST_UDP_LIMIT)
                assert isinstance(answer, bytes)
                sock.sendto(answer, peer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield "{}:{}".format(*sock.getsockname())
        sock.sendto(b"", sock.getsockname())
        thread.join()


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Takes queries and answers none."""
    monkeypatch.setattr(command, "PATIENCE_SECONDS", 0.02)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield "{}:{}".format(*sock.getsockname())


def test_where_the_server_is_silent_the_objects_answer(manifests: Path, silent_server: str) -> None:
    result = call("web.shop", "--server", silent_server, "--manifests", manifests)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"the server does not answer: no answer from {silent_server}: timed out; this is what the objects say:",
        f"web.shop.svc.cluster.local. A: NOERROR ({manifests})",
        "  web.shop.svc.cluster.local. 30 IN A 10.96.1.1",
        f"web.shop.svc.cluster.local. AAAA: NOERROR ({manifests})",
        f"Objects: {manifests}",
        "Service shop/web: its ClusterIPs 10.96.1.1; its endpoints do not matter",
    ]
    document = json.loads(call("web.shop", "--server", silent_server, "--manifests", manifests, "-o", "json").stdout)
    assert document["silence"].startswith("the server does not answer: ")


def test_where_the_process_is_silent_it_says_so(
    manifests: Path, silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "listening_places", lambda: (parse_server(silent_server),))
    result = call("web.shop", "A", "--manifests", manifests)
    assert result.stdout.startswith(f"the DNS process does not answer: no answer from {silent_server}: ")
    assert "  web.shop.svc.cluster.local. 30 IN A 10.96.1.1" in result.stdout.splitlines()
    alone = call("web.shop", "A")
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert "the DNS process does not answer" in alone.stderr


def test_a_server_is_asked_and_compared(manifests: Path, server: str) -> None:
    same = call("web.shop", "A", "--server", server, "--manifests", manifests)
    assert same.stdout.splitlines() == [
        f"web.shop.svc.cluster.local. A: NOERROR ({server})",
        "  web.shop.svc.cluster.local. 30 IN A 10.96.1.1",
        f"Objects: {manifests}",
        "Service shop/web: its ClusterIPs 10.96.1.1; its endpoints do not matter",
    ]
    other = call("db.shop", "A", "--server", server, "--manifests", manifests)
    assert f"{server} answers A differently from these objects: NOERROR" in other.stdout
    alone = call("web.shop", "A", "--server", server)
    assert alone.exit_code == 0
    assert len(alone.stdout.splitlines()) == 2
