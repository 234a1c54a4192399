"""Three servers on one etcd of three members: what one has acknowledged, all show; nothing is given twice; faults lose nothing."""

import base64
import contextlib
import http.client
import json
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nodeagent.apiserver.storages import EtcdSettings
from tests.contract.apiserver.conftest import Api, ServerThread
from tests.harness.etcd import EtcdCluster, needs_etcd, running

pytestmark = needs_etcd
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
MERGE = {"Content-Type": "application/merge-patch+json"}
DEADLINE_SECONDS = 90.0
QUOTA_BYTES = 4 << 20


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with running(tmp_path_factory.mktemp("etcd"), 3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def begin(etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Api]]:
    started: list[Api] = []

    def one() -> Api:
        settings = EtcdSettings(servers=tuple(etcd.endpoints))
        started.append(Api(ServerThread(tmp_path_factory.mktemp("server"), etcd=settings)))
        return started[-1]

    yield one
    for api in started:
        api.stop()


@pytest.fixture(scope="module")
def servers(begin: Callable[[], Api]) -> list[Api]:
    return [begin() for _ in range(3)]


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.05)


def test_all_servers_see_a_write_that_one_has_acknowledged(servers: list[Api]) -> None:
    for number in range(20):
        one, two, three = (servers[(number + step) % 3] for step in range(3))
        path = f"{CONFIGMAPS}/seen-{number}"
        assert one.call("POST", CONFIGMAPS, configmap(f"seen-{number}", a="1")).status == 201
        assert two.get(path)["data"] == {"a": "1"}
        assert f"seen-{number}" in [item["metadata"]["name"] for item in three.get(CONFIGMAPS)["items"]]
        assert three.call("PATCH", path, {"data": {"a": "2"}}, MERGE).status == 200
        # Computed from what there was before, this would change nothing.
        assert two.call("PATCH", path, {"data": {"a": "1"}}, MERGE).json["data"] == {"a": "1"}
        assert one.get(path)["data"] == {"a": "1"}
        assert three.call("DELETE", path).status == 200
        assert two.call("GET", path).status == 404
        assert one.call("POST", CONFIGMAPS, configmap(f"seen-{number}")).status == 201


def test_of_the_same_name_or_port_or_revision_one_gets_it(servers: list[Api]) -> None:
    with ThreadPoolExecutor(6) as pool:
        for number in range(5):
            port = 31000 + number

            def create(at: int, number: int = number, port: int = port) -> tuple[int, int]:
                api = servers[at % 3]
                first = api.call("POST", CONFIGMAPS, configmap(f"once-{number}", by=str(at))).status
                spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}
                service = {"metadata": {"name": f"port-{number}-{at}"}, "spec": spec}
                return first, api.call("POST", SERVICES, service).status

            names, ports = zip(*pool.map(create, range(6)), strict=True)
            assert sorted(names) == [201, 409, 409, 409, 409, 409]
            assert sorted(ports) == [201, 422, 422, 422, 422, 422]
            found = servers[0].get(f"{CONFIGMAPS}/once-{number}")

            def replace(at: int, found: Any = found) -> int:
                path = f"{CONFIGMAPS}/{found['metadata']['name']}"
                return servers[at % 3].call("PUT", path, {**found, "data": {"by": f"again {at}"}}).status

            assert sorted(pool.map(replace, range(6))) == [200, 409, 409, 409, 409, 409]


def test_no_address_is_given_twice(servers: list[Api]) -> None:
    def create(number: int) -> str:
        body = {"metadata": {"name": f"address-{number}"}, "spec": {"ports": [{"port": 80}]}}
        answer = servers[number % 3].call("POST", SERVICES, body)
        assert answer.status == 201, answer.body
        return str(answer.json["spec"]["clusterIP"])

    with ThreadPoolExecutor(6) as pool:
        given = list(pool.map(create, range(30)))
    assert len(set(given)) == 30


def test_of_concurrent_increments_on_all_servers_none_is_lost(servers: list[Api]) -> None:
    path = f"{CONFIGMAPS}/counter"
    assert servers[0].call("POST", CONFIGMAPS, configmap("counter", n="0")).status == 201

    def increment(at: int) -> None:
        for _ in range(5):
            while True:
                found = servers[at].get(path)
                found["data"]["n"] = str(int(found["data"]["n"]) + 1)
                if servers[at].call("PUT", path, found).status == 200:
                    break

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(increment, range(3)))
    assert servers[2].get(path)["data"] == {"n": "15"}


def frames(api: Api, since: str, count: int) -> list[tuple[str, str, str]]:
    found = []
    watch = api.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={since}&labelSelector=moved=yes&timeoutSeconds=60")
    with contextlib.closing(watch):  # type: ignore[type-var]
        for frame in watch:
            meta = frame["object"]["metadata"]
            found.append((frame["type"], meta["name"], meta["resourceVersion"]))
            if len(found) == count:
                break
    return found


def test_a_watch_goes_on_at_any_server_from_where_it_was_also_at_one_that_was_started_since(
    servers: list[Api], begin: Callable[[], Api]
) -> None:
    since = servers[0].get(CONFIGMAPS)["metadata"]["resourceVersion"]
    expected = []
    for number in range(5):
        body = configmap(f"moved-{number}")
        body["metadata"]["labels"] = {"moved": "yes"}
        created = servers[number % 3].call("POST", CONFIGMAPS, body).json
        expected.append(("ADDED", f"moved-{number}", created["metadata"]["resourceVersion"]))
    assert servers[1].call("DELETE", f"{CONFIGMAPS}/moved-0").status == 200
    late = begin()
    seen = [frames(api, since, 6) for api in (*servers, late)]
    assert seen[0][:5] == expected
    assert seen[0][5][:2] == ("DELETED", "moved-0")
    assert all(one == seen[0] for one in seen)
    half = expected[2][2]
    assert frames(late, half, 3) == seen[0][3:]


def test_a_page_continues_at_another_server(servers: list[Api]) -> None:
    first = servers[0].get(f"{CONFIGMAPS}?limit=3")
    assert servers[0].call("POST", CONFIGMAPS, configmap("between")).status == 201
    rest = servers[1].get(f"{CONFIGMAPS}?limit=1000&continue={first['metadata']['continue']}")
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    names = [item["metadata"]["name"] for item in [*first["items"], *rest["items"]]]
    assert names == sorted(set(names))
    assert "between" not in names


def test_users_and_accounts_of_one_are_those_of_all(servers: list[Api]) -> None:
    one, two = servers[0], servers[1]
    assert one.server.credentials is not None
    assert two.server.credentials is not None
    assert one.server.credentials.authority.read_bytes() == two.server.credentials.authority.read_bytes()
    assert two.call("GET", "/api/v1/nodes", token=one.token).status == 200
    account = {"metadata": {"name": "robot"}}
    assert one.call("POST", "/api/v1/namespaces/default/serviceaccounts", account).status == 201
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    token = one.call("POST", path, {"spec": {}}).json["status"]["token"]
    until(lambda: two.call("GET", SERVICES, token=token).status == 200, "the account is not known")
    users = one.server.credentials.directory / "tokens.csv"
    before = users.read_text()
    users.write_text(f'{before}secret-of-guest,guest,guest,"nodeagent:readers"\n')
    until(lambda: two.call("GET", SERVICES, token="secret-of-guest").status == 200, "the user did not come")
    others = two.server.credentials.directory / "tokens.csv"
    others.write_text("".join(line for line in others.read_text().splitlines(True) if "guest" not in line))
    until(lambda: one.call("GET", SERVICES, token="secret-of-guest").status == 401, "the user did not go")


def put(etcd: EtcdCluster, key: str, value: bytes) -> None:
    body = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value).decode()}
    assert etcd.members[0].call("/v3/kv/put", body)


def test_values_are_as_kube_apiserver_keeps_them(servers: list[Api], etcd: EtcdCluster) -> None:
    assert servers[0].call("POST", CONFIGMAPS, configmap("kept", a="1")).status == 201
    key = base64.b64encode(b"/registry/configmaps/default/kept").decode()
    found = etcd.members[0].call("/v3/kv/range", {"key": key})["kvs"][0]
    stored = json.loads(base64.b64decode(found["value"]))
    assert (stored["kind"], stored["apiVersion"], stored["data"]) == ("ConfigMap", "v1", {"a": "1"})
    assert "resourceVersion" not in stored["metadata"]
    shown = servers[1].get(f"{CONFIGMAPS}/kept")
    assert shown["metadata"].pop("resourceVersion") == found["mod_revision"]
    assert shown == stored


def test_objects_of_other_writers_are_served_and_unreadable_ones_left_alone(
    servers: list[Api], etcd: EtcdCluster, begin: Callable[[], Api]
) -> None:
    meta = {
        "name": "foreign",
        "namespace": "default",
        "uid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [],
    }
    value = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"a": "1"}, "surplus": True}
    protobuf = b"k8s\0\n\x0f\n\x02v1\x12\tConfigMap\x12\x00"
    put(etcd, "/registry/configmaps/default/unreadable", protobuf)
    put(etcd, "/registry/deployments/default/web", b"k8s\0whatever")
    put(etcd, "/registry/configmaps/default/foreign", json.dumps(value).encode() + b"\n")
    for api in (servers[0], begin()):
        assert api.get(f"{CONFIGMAPS}/foreign")["data"] == {"a": "1"}
        assert api.call("GET", f"{CONFIGMAPS}/unreadable").status == 404
        assert api.call("POST", CONFIGMAPS, configmap("unreadable")).status == 409
        names = [item["metadata"]["name"] for item in api.get(CONFIGMAPS)["items"]]
        assert "foreign" in names
        assert "unreadable" not in names
    assert servers[1].call("PATCH", f"{CONFIGMAPS}/foreign", {"data": {"a": "2"}}, MERGE).status == 200
    assert servers[2].get(f"{CONFIGMAPS}/foreign")["data"] == {"a": "2"}
    assert servers[1].call("DELETE", f"{CONFIGMAPS}/foreign").status == 200


def ask(api: Api, method: str, path: str, body: Any = None) -> int:
    """The status; 0 when no answer came."""
    with contextlib.suppress(OSError, http.client.HTTPException, ssl.SSLError):
        return api.call(method, path, body).status
    return 0


@pytest.mark.parametrize("fault", ["frozen", "killed"])
def test_while_the_leader_is_gone_writes_go_on_and_none_is_lost_or_refused_for_itself(
    servers: list[Api], etcd: EtcdCluster, fault: str
) -> None:
    stop = threading.Event()
    answers: dict[str, int] = {}

    def write(at: int) -> None:
        number = 0
        while not stop.is_set():
            name = f"{fault}-{at}-{number}"
            answers[name] = ask(servers[at], "POST", CONFIGMAPS, configmap(name))
            number += 1
            time.sleep(0.02)

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, at) for at in range(3)]
        try:
            until(lambda: len(answers) > 10, "nothing is written")
            leader = etcd.leader()
            leader.freeze() if fault == "frozen" else leader.kill()
            before = len([name for name, status in answers.items() if status == 201])
            until(lambda: sum(status == 201 for status in answers.values()) > before + 30, "writes do not go on")
        finally:
            stop.set()
        for writer in writers:
            writer.result()
        leader.thaw() if fault == "frozen" else leader.start()
    assert set(answers.values()) <= {201, 503, 504}, "no write is refused for what it has itself written"
    acknowledged = {name for name, status in answers.items() if status == 201}
    for api in servers:
        present = {item["metadata"]["name"] for item in api.get(CONFIGMAPS)["items"]}
        assert acknowledged <= present
    until(lambda: all(ask(api, "GET", "/readyz") == 200 for api in servers), "not ready again")


def test_without_etcd_only_what_may_be_old_is_answered(servers: list[Api], etcd: EtcdCluster) -> None:
    api = servers[0]
    assert api.call("POST", CONFIGMAPS, configmap("survivor")).status == 201
    for member in etcd.members:
        member.freeze()
    try:
        with ThreadPoolExecutor(3) as pool:
            written = pool.submit(api.call, "POST", CONFIGMAPS, configmap("unheard"))
            read = pool.submit(api.call, "GET", f"{CONFIGMAPS}/survivor")
            old = pool.submit(api.call, "GET", f"{CONFIGMAPS}?resourceVersion=0")
            assert old.result().status == 200
            assert read.result().status == 503
            assert written.result().status in (503, 504)
            assert written.result().headers["Retry-After"] == "1"
        until(lambda: b"[-]etcd failed" in api.call("GET", "/readyz").body, "readyz does not say so")
        assert api.call("GET", "/livez").status == 200
    finally:
        for member in etcd.members:
            member.thaw()
    until(lambda: api.call("GET", "/readyz").status == 200, "not ready again")
    until(lambda: api.call("POST", CONFIGMAPS, configmap("heard")).status in (201, 409), "no write passes")
    assert api.call("GET", f"{CONFIGMAPS}/survivor").status == 200


def test_a_full_etcd_is_reported_freed_and_used_again(tmp_path: Path) -> None:
    with running(tmp_path / "etcd", 1, "--quota-backend-bytes", str(QUOTA_BYTES)) as cluster:
        settings = EtcdSettings(servers=tuple(cluster.endpoints))
        thread = ServerThread(tmp_path / "server", etcd=settings)
        api = Api(thread)
        try:
            answer, number = api.call("GET", "/readyz"), 0
            assert answer.status == 200
            while answer.status in (200, 201):
                answer = api.call("POST", CONFIGMAPS, configmap(f"large-{number}", x="x" * 200_000))
                number += 1
            assert answer.status == 507
            ready = api.call("GET", "/readyz")
            assert (ready.status, b"[-]store-space failed" in ready.body) == (500, True)
            for other in range(number - 1):
                assert api.call("DELETE", f"{CONFIGMAPS}/large-{other}").status == 200

            member = cluster.members[0]

            def is_small() -> bool:
                # What an operator does: history is cut by the server, the rest is etcd's.
                member.call("/v3/maintenance/defragment")
                return int(member.call("/v3/maintenance/status")["dbSize"]) < QUOTA_BYTES // 4

            until(is_small, "history is not cut")
            for alarm in member.call("/v3/maintenance/alarm", {"action": "GET"})["alarms"]:
                member.call("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})
            until(lambda: api.call("GET", "/readyz").status == 200, "not ready again")
            assert api.call("POST", CONFIGMAPS, configmap("fits")).status == 201

            def is_status() -> bool:
                events = api.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=kubernetes")
                return [event["reason"] for event in events["items"]] == ["StoreFull"]

            until(is_status, "it is said nowhere")
        finally:
            api.stop()


def test_events_have_a_lease_of_an_hour_and_other_objects_no_lease(servers: list[Api], etcd: EtcdCluster) -> None:
    def lease_of(path: str) -> int:
        key = b64encode(f"/registry/{path}".encode()).decode()
        (found,) = etcd.members[0].call("/v3/kv/range", {"key": key})["kvs"]
        return int(found.get("lease", 0))

    about = {"kind": "Service", "name": "kubernetes", "namespace": "default"}
    event = {"metadata": {"name": "kept"}, "involvedObject": about, "reason": "Seen", "message": "m"}
    path = "/api/v1/namespaces/default/events"
    assert servers[0].call("POST", path, event).status == 201
    first = lease_of("events/default/kept")
    left = etcd.members[0].call("/v3/lease/timetolive", {"ID": str(first)})
    assert (int(left["grantedTTL"]), int(left["TTL"]) > 3000) == (3600, True)
    assert servers[1].call("PATCH", f"{path}/kept", {"count": 2}, MERGE).status == 200
    assert lease_of("events/default/kept") not in {0, first}, "its hour has started again"
    assert servers[0].call("POST", CONFIGMAPS, configmap("stays")).status == 201
    assert lease_of("configmaps/default/stays") == 0
