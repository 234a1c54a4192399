"""TokenRequest: a token for a service account, good for looking around until the account is gone."""

from typing import Any

import pytest

SERVICES = "/api/v1/services"


@pytest.fixture
def account(api: Any, demo: str) -> str:
    path = f"/api/v1/namespaces/{demo}/serviceaccounts"
    assert api.call("POST", path, {"metadata": {"name": "reader"}}).status == 201
    return f"{path}/reader"


def request(**spec: Any) -> Any:
    return {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}


def test_a_token_lets_its_account_look_but_not_touch(api: Any, account: str, demo: str) -> None:
    answer = api.call("POST", f"{account}/token", request(expirationSeconds=3600))
    assert (answer.status, answer.json["kind"]) == (201, "TokenRequest")
    assert answer.json["metadata"]["name"] == "reader"
    token = answer.json["status"]["token"]
    assert api.call("GET", SERVICES, token=token).status == 200
    assert api.call("GET", "/api/v1/secrets", token=token).status == 403
    refused = api.call("POST", f"/api/v1/namespaces/{demo}/configmaps", {"metadata": {"name": "x"}}, token=token)
    assert refused.status == 403
    assert f"system:serviceaccount:{demo}:reader" in refused.json["message"]


def test_a_token_ends_with_its_account_even_if_that_comes_back(api: Any, account: str) -> None:
    token = api.call("POST", f"{account}/token", request()).json["status"]["token"]
    assert api.call("DELETE", account).status == 200
    assert api.call("GET", SERVICES, token=token).status == 401
    path, _, name = account.rpartition("/")
    assert api.call("POST", path, {"metadata": {"name": name}}).status == 201
    assert api.call("GET", SERVICES, token=token).status == 401


def test_an_account_that_only_a_finalizer_holds_has_no_tokens(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/serviceaccounts"
    assert api.call("POST", path, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}).status == 201
    token = api.call("POST", f"{path}/held/token", request()).json["status"]["token"]
    assert api.call("GET", SERVICES, token=token).status == 200
    assert api.call("DELETE", f"{path}/held").json["metadata"]["deletionTimestamp"]
    assert api.call("GET", SERVICES, token=token).status == 401
    assert api.call("POST", f"{path}/held/token", request()).status == 409


def test_a_token_for_another_audience_is_refused(api: Any, account: str) -> None:
    answer = api.call("POST", f"{account}/token", request(audiences=["vault"])).json
    assert answer["spec"]["audiences"] == ["vault"]
    assert api.call("GET", SERVICES, token=answer["status"]["token"]).status == 401


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"expirationSeconds": 599}, "spec.expirationSeconds", id="too short"),
        pytest.param({"expirationSeconds": 2**32 + 1}, "spec.expirationSeconds", id="too long"),
        pytest.param({"boundObjectRef": {"kind": "Pod", "name": "p"}}, "spec.boundObjectRef", id="bound to a pod"),
    ],
)
def test_a_request_that_cannot_be_granted_names_the_field(api: Any, account: str, spec: Any, field: str) -> None:
    answer = api.call("POST", f"{account}/token", request(**spec))
    assert answer.status == 422
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == [field]


def test_only_those_who_may_do_everything_may_ask(api: Any, account: str) -> None:
    own = api.call("POST", f"{account}/token", request()).json["status"]["token"]
    for token, status in ((api.server.credentials.reader_token, 403), (own, 403), (None, 401)):
        assert api.call("POST", f"{account}/token", request(), token=token).status == status


def test_a_token_request_is_not_stored(api: Any, account: str) -> None:
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        assert api.call(method, f"{account}/token", request() if method != "GET" else None).status == 405
    assert api.call("POST", f"{account[:-1]}/token", request()).status == 404
    assert api.call("POST", f"{account}/token", {"kind": "Service", "apiVersion": "v1"}).status == 400


def test_tokens_outlive_a_restart(start: Any) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts"
    api = start()
    api.call("POST", path, {"metadata": {"name": "reader"}})
    token = api.call("POST", f"{path}/reader/token", request()).json["status"]["token"]
    api.stop()
    assert start().call("GET", SERVICES, token=token).status == 200
