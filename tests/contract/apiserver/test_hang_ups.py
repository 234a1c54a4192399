"""Clients that hang up leave nothing behind: no watch, and no write that is half done."""

import gc
import json
import time
from typing import Any

from nodeagent.apiserver.api.watches import Watch

DEADLINE_SECONDS = 60.0


def watches() -> int:
    """How many watches there are in this process, in which the tests' servers run."""
    return sum(isinstance(found, Watch) for found in gc.get_objects())


def test_a_watch_of_something_quiet_ends_when_its_client_hangs_up(api: Any) -> None:
    before = watches()
    connections = [api.connect() for _ in range(20)]
    for connection in connections:
        path = "/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=300"
        connection.request("GET", path, None, {"Authorization": f"Bearer {api.token}"})
        connection.getresponse()
    assert watches() == before + 20
    for connection in connections:
        connection.sock.close()
        connection.close()
    ends = time.monotonic() + DEADLINE_SECONDS
    while watches() > before and time.monotonic() < ends:
        api.get("/version")
    assert watches() == before


def test_a_write_whose_client_hangs_up_is_done_or_not_done(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/services"
    for number in range(40):
        connection = api.connect()
        body = json.dumps({"metadata": {"name": f"s{number}"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
        connection.request("POST", path, body, {"Authorization": f"Bearer {api.token}"})
        connection.sock.close()
        connection.close()
    last = api.call("POST", path, {"metadata": {"name": "last"}, "spec": {"ports": [{"port": 80}]}})
    assert last.status == 201

    def is_settled(_: Any) -> bool:
        services = api.get("/api/v1/services")["items"]
        held = {item["spec"]["clusterIP"]: item["metadata"]["name"] for item in services}
        ports = [port["nodePort"] for item in services for port in item["spec"]["ports"] if "nodePort" in port]
        recorded = api.get("/apis/networking.k8s.io/v1/ipaddresses")["items"]
        owners = {item["metadata"]["name"]: item["spec"]["parentRef"]["name"] for item in recorded}
        return len(held) == len(services) and len(set(ports)) == len(ports) and owners == held

    api.until("/version", is_settled)
