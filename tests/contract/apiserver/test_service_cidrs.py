"""Further ServiceCIDRs extend what cluster addresses come from, and go only when nothing depends on them (KEP-1880)."""

import asyncio
import threading
from typing import Any

import pytest

from nodeagent.apiserver.controllers.elected import ElectedControllers

CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
SERVICES = "/api/v1/namespaces/default/services"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"


def service_cidr(name: str, *cidrs: str) -> Any:
    return {"metadata": {"name": name}, "spec": {"cidrs": cidrs}}


def service(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def ready(found: Any) -> tuple[str, str] | None:
    for condition in found.get("status", {}).get("conditions") or []:
        return condition["status"], condition["reason"]
    return None


def test_a_further_range_serves_when_the_first_is_full(start: Any) -> None:
    api = start(service_ranges="10.96.0.0/29")
    answers = [api.call("POST", SERVICES, service(f"s{number}")) for number in range(6)]
    assert [answer.status for answer in answers] == [201] * 5 + [422]
    assert "range is full" in answers[5].json["message"]
    assert api.call("POST", CIDRS, service_cidr("more", "10.97.0.0/24")).status == 201
    found = api.until(f"{CIDRS}/more", ready)
    assert ready(found) == ("True", "")
    assert found["metadata"]["finalizers"] == [FINALIZER]
    created = api.call("POST", SERVICES, service("later"))
    assert created.status == 201
    assert created.json["spec"]["clusterIP"].startswith("10.97.0.")
    # One of the first sixteen, which are given only when asked for (KEP-3070): not the one that the Service before has got.
    assert api.call("POST", SERVICES, service("chosen", clusterIP="10.97.0.7")).status == 201


def test_a_range_goes_when_its_addresses_are_given_back(start: Any) -> None:
    api = start()
    api.call("POST", CIDRS, service_cidr("more", "10.200.0.0/24"))
    api.until(f"{CIDRS}/more", ready)
    assert api.call("POST", SERVICES, service("holder", clusterIP="10.200.0.7")).status == 201
    deleted = api.call("DELETE", f"{CIDRS}/more")
    assert deleted.json["metadata"]["deletionTimestamp"]
    assert ready(api.until(f"{CIDRS}/more", lambda found: ready(found) != ("True", ""))) == ("False", "Terminating")
    refused = api.call("POST", SERVICES, service("late", clusterIP="10.200.0.8"))
    assert refused.status == 422
    assert "10.200.0.8" in refused.json["message"]
    assert api.get(f"{SERVICES}/holder")["spec"]["clusterIP"] == "10.200.0.7"
    api.call("DELETE", f"{SERVICES}/holder")
    api.until(f"{CIDRS}/more", lambda found: found["kind"] == "Status" and found["code"] == 404)


def test_a_range_goes_when_another_has_its_addresses_too(start: Any) -> None:
    api = start()
    api.call("POST", CIDRS, service_cidr("small", "10.200.0.0/24"))
    api.until(f"{CIDRS}/small", ready)
    api.call("POST", SERVICES, service("holder", clusterIP="10.200.0.7"))
    api.call("DELETE", f"{CIDRS}/small")
    api.until(f"{CIDRS}/small", lambda found: ready(found) == ("False", "Terminating"))
    api.call("POST", CIDRS, service_cidr("large", "10.200.0.0/16"))
    api.until(f"{CIDRS}/small", lambda found: found.get("code") == 404)
    assert api.call("POST", SERVICES, service("next", clusterIP="10.200.0.8")).status == 201


def test_the_servers_own_range_comes_back(start: Any) -> None:
    api = start()
    before = api.get(f"{CIDRS}/kubernetes")
    assert api.call("DELETE", f"{CIDRS}/kubernetes").status == 200
    own = f"{CIDRS}/kubernetes"
    after = api.until(own, lambda found: found["kind"] == "ServiceCIDR" and ready(found) == ("True", ""))
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"] == before["spec"]


def test_the_servers_own_range_comes_back_if_it_was_deleted_before_the_controllers_began(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As right after a start, or while no server of several is the leader."""
    run, deleted = ElectedControllers.run, threading.Event()

    async def begin_late(controllers: ElectedControllers) -> None:
        while not deleted.is_set():  # noqa: ASYNC110 - an event of another thread
            await asyncio.sleep(0.01)
        await run(controllers)

    monkeypatch.setattr(ElectedControllers, "run", begin_late)
    api = start()
    own = f"{CIDRS}/kubernetes"
    assert api.call("DELETE", own).status == 200
    assert api.get(own)["code"] == 404
    deleted.set()
    api.until(own, lambda found: found["kind"] == "ServiceCIDR" and ready(found) == ("True", ""))


def test_a_range_outlives_the_server(start: Any) -> None:
    api = start()
    api.call("POST", CIDRS, service_cidr("more", "10.200.0.0/24"))
    api.until(f"{CIDRS}/more", ready)
    api.stop()
    again = start()
    assert again.call("POST", SERVICES, service("later", clusterIP="10.200.0.7")).status == 201


def test_an_invalid_range_is_refused(api: Any) -> None:
    for cidrs in ([], ["10.200.0.1/24"], ["10.200.0.0/24", "10.201.0.0/24"]):
        assert api.call("POST", CIDRS, service_cidr("wrong", *cidrs)).status == 422
