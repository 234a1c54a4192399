"""One client asks for much: others are served all the same. Several clients with a token each, against a running server."""

import http.client
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from nodeagent.cli.apiserver import apiserver_command
from nodeagent.runtime.serving.admission import ConnectionLimits

DEADLINE_SECONDS = 60.0
MANY = 30
EVENTS = "/api/v1/namespaces/default/events"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ABOUT = {"kind": "Service", "name": "kubernetes", "namespace": "default"}
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def agent_token(tmp_path: Path) -> Callable[[Any], str]:
    """The token of an agent of a server that runs in the test's directory."""

    def token(api: Any) -> str:
        options = ["--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{api.server.port}"]
        made = CliRunner().invoke(apiserver_command, [*options, "kubeconfig", "--role", "agent", "--name", "node-a"])
        found: str = yaml.safe_load(made.output)["users"][0]["user"]["token"]
        return found

    return token


def announced(api: Any, token: str, size: int) -> http.client.HTTPSConnection:
    """A connection on which a body has been announced and not sent."""
    connection: http.client.HTTPSConnection = api.connect()
    connection.putrequest("POST", EVENTS)
    connection.putheader("Authorization", f"Bearer {token}")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(size))
    connection.endheaders()
    return connection


def test_bodies_that_are_announced_and_not_sent_hold_up_nobody(start: Callable[..., Any], agent_token: Any) -> None:
    api = start()
    token = agent_token(api)
    silent = [announced(api, token, 20_000) for _ in range(50)]
    large = {"metadata": {"name": "large"}, "data": {"x": "y" * 20_000}}
    assert api.call("POST", CONFIG_MAPS, large).status == 201
    event = {"metadata": {"name": "large"}, "involvedObject": ABOUT, "reason": "Seen", "message": "z" * 20_000}
    assert api.call("POST", EVENTS, event, token=token).status == 201
    for connection in silent:
        connection.sock.settimeout(0)  # without an answer: none had to be given up for the others
        with pytest.raises(ssl.SSLWantReadError):
            connection.sock.recv(1)
        connection.close()


def test_a_client_that_sends_no_body_is_given_up(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.apiserver.api.body_room.BodyRoom.seconds_for", lambda *_: 0.3)
    api = start()
    connection = announced(api, api.token, 20_000)
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["reason"]) == (408, "Timeout")
    connection.close()


def test_small_patches_of_a_large_object_hold_up_nobody_else(
    start: Callable[..., Any], agent_token: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them makes a document of many values; a few at a time are under way."""
    monkeypatch.setattr("nodeagent.apiserver.api.event_limits.EventRate.take", lambda *_: 0.0)
    api = start()
    token = agent_token(api)
    references = [{"apiVersion": "v1", "kind": "Pod", "name": f"p{n}", "uid": f"u{n}"} for n in range(1_000)]
    for number in range(MANY):
        meta = {"name": f"big-{number}", "ownerReferences": references}
        event = {"metadata": meta, "involvedObject": ABOUT, "reason": "Seen"}
        assert api.call("POST", EVENTS, event, token=token).status == 201
    finished: list[int] = []

    def patch(number: int) -> None:
        answer = api.call("PATCH", f"{EVENTS}/big-{number}", {"count": 2}, MERGE, token=token)
        finished.append(answer.status)

    attackers = [threading.Thread(target=patch, args=(number,)) for number in range(MANY)]
    for attacker in attackers:
        attacker.start()
    while not finished:
        threading.Event().wait(0.01)
    large = {"metadata": {"name": "large"}, "data": {"x": "y" * 20_000}}
    before = len(finished)
    assert api.call("POST", CONFIG_MAPS, large).status == 201
    waited_for = len(finished) - before
    for attacker in attackers:
        attacker.join(DEADLINE_SECONDS)
    assert waited_for < MANY / 2


def test_a_user_has_a_bound_of_connections_and_others_come_in(start: Callable[..., Any], agent_token: Any) -> None:
    api = start(connections=ConnectionLimits(per_user=5))
    token = agent_token(api)
    held = []
    for _ in range(5):
        connection = api.connect()
        connection.request("GET", "/api/v1/services?watch=1", None, {"Authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 200
        held.append(connection)
    one_more = api.connect()
    one_more.request("GET", "/api/v1/services", None, {"Authorization": f"Bearer {token}"})
    refused = one_more.getresponse()
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    assert api.get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
    held.pop().close()
    api.until("/api/v1/namespaces/default", lambda _: is_answered(api, token))
    for connection in [*held, one_more]:
        connection.close()


def is_answered(api: Any, token: str) -> bool:
    return bool(api.call("GET", "/api/v1/services", token=token).status == 200)


def event(name: str, message: str = "m", **meta: Any) -> Any:
    return {"metadata": {"name": name, **meta}, "involvedObject": ABOUT, "reason": "Seen", "message": message}


def test_a_user_writes_events_at_a_rate_and_others_at_their_own(start: Callable[..., Any], agent_token: Any) -> None:
    api = start()
    token = agent_token(api)
    answers = [api.call("POST", EVENTS, event(f"e-{number}"), token=token) for number in range(400)]
    refused = [answer for answer in answers if answer.status == 429]
    assert {answer.status for answer in answers} == {201, 429}
    assert 100 <= len(refused) <= 200
    assert refused[0].json["reason"] == "TooManyRequests"
    assert refused[0].json["details"]["retryAfterSeconds"] == int(refused[0].headers["Retry-After"]) >= 1
    assert api.call("PATCH", f"{EVENTS}/e-0", {"count": 2}, MERGE, token=token).status in {200, 429}
    assert api.call("POST", EVENTS, event("of-an-administrator")).status == 201
    assert api.call("DELETE", f"{EVENTS}/e-0").status == 200
    assert api.call("GET", "/api/v1/services", token=token).status == 200


def test_large_events_count_by_their_size(start: Callable[..., Any], agent_token: Any) -> None:
    api = start()
    token = agent_token(api)
    sizes = [api.call("POST", EVENTS, event(f"e-{number}", "x" * 400_000), token=token).status for number in range(5)]
    assert sizes.count(201) == 2


def test_events_have_a_quarter_of_the_store_and_leave_the_rest(start: Callable[..., Any], agent_token: Any) -> None:
    api = start(limit_bytes=4 * 1024 * 1024)
    token = agent_token(api)
    statuses = [
        api.call("POST", EVENTS, event(f"e-{number}", "x" * 200_000), token=who).status
        for number, who in enumerate([token, "admin"] * 4)
    ]
    assert statuses == [201] * 5 + [403] * 3
    large = {"metadata": {"name": "large"}, "data": {"x": "y" * 500_000}}
    assert api.call("POST", CONFIG_MAPS, large).status == 201
    assert api.call("DELETE", EVENTS).status == 200
    assert api.call("POST", EVENTS, event("again")).status == 201


def test_no_client_dates_an_event_into_the_future(start: Callable[..., Any], agent_token: Any) -> None:
    api = start()
    held = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    entry = {**held, "time": "9999-12-31T23:59:59Z", "fieldsV1": {"f:reason": {}}}
    made = api.call("POST", EVENTS, event("e", managedFields=[entry]), token=agent_token(api)).json
    meta = api.call("PUT", f"{EVENTS}/e", {**made, "metadata": {**made["metadata"], "managedFields": [entry]}}).json[
        "metadata"
    ]
    times = [one["time"] for one in made["metadata"]["managedFields"] + meta["managedFields"]]
    assert times
    assert max(times) < "9000"
