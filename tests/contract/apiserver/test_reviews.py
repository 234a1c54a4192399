"""Reviews: who somebody is, and what they may do; and administrators who act as somebody else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.apiserver.api.pki import GROUPS, add_user
from tests.contract.apiserver.conftest import Api

SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/{}"
ACCOUNT = "system:serviceaccount:default:default"


def may(api: Api, spec: dict[str, Any], kind: str = "subjectaccessreviews", **options: Any) -> Any:
    answer = api.call("POST", ACCESS.format(kind), {"spec": spec}, **options)
    assert answer.status == 201, answer.body
    return answer.json["status"]["allowed"]


def about(verb: str, resource: str, **more: str) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "default", **more}}


@pytest.fixture
def tokens(start: Callable[..., Any], tmp_path: Path) -> tuple[Api, dict[str, str]]:
    api = start()
    path = tmp_path / "pki" / "tokens.csv"
    return api, {role: add_user(path, role, GROUPS[role]) for role in ("reader", "agent")}


def test_a_client_learns_who_it_is(tokens: tuple[Api, dict[str, str]]) -> None:
    api, known = tokens
    answer = api.call("POST", SELF, {}, token=known["reader"])
    assert answer.status == 201, answer.body
    info = answer.json["status"]["userInfo"]
    assert (info["username"], info["groups"]) == ("reader", ["nodeagent:readers", "system:authenticated"])
    assert api.call("POST", SELF, {}, token=None).status == 401


def test_a_client_learns_what_it_may_do(tokens: tuple[Api, dict[str, str]]) -> None:
    api, known = tokens
    for verb, resource, expected in (
        ("list", "services", True),
        ("delete", "services", False),
        ("get", "secrets", False),
        ("get", "*", False),
    ):
        assert may(api, about(verb, resource), "selfsubjectaccessreviews", token=known["reader"]) is expected
        assert may(api, about(verb, resource), "selfsubjectaccessreviews") is True
    path = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
    assert may(api, path, "selfsubjectaccessreviews", token=known["reader"])
    assert not may(api, path, "selfsubjectaccessreviews", token=known["agent"])


def test_only_administrators_ask_about_others(tokens: tuple[Api, dict[str, str]]) -> None:
    api, known = tokens
    spec = {**about("list", "configmaps"), "user": ACCOUNT}
    assert may(api, spec)
    assert not may(api, {**spec, "user": "nobody"})
    assert may(api, {**about("create", "leases"), "user": "x", "groups": ["nodeagent:agents"]})
    for path, body in ((ACCESS.format("subjectaccessreviews"), {"spec": spec}), (TOKENS, {"spec": {"token": "a"}})):
        assert api.call("POST", path, body, token=known["reader"]).status == 403
    local = ACCESS.format("namespaces/default/localsubjectaccessreviews")
    assert api.call("POST", local, {"spec": spec}).json["status"]["allowed"]
    other = {**about("list", "configmaps", namespace="other"), "user": ACCOUNT}
    assert api.call("POST", local, {"spec": other}).status == 422
    assert api.call("POST", ACCESS.format("subjectaccessreviews"), {"spec": about("get", "x")}).status == 422


def test_whose_a_token_is(tokens: tuple[Api, dict[str, str]]) -> None:
    api, known = tokens
    found = api.call("POST", TOKENS, {"spec": {"token": known["agent"]}}).json["status"]
    assert (found["authenticated"], found["user"]["username"]) == (True, "agent")
    made = api.call("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "asked"}}).json
    request: dict[str, Any] = {"spec": {"audiences": []}}
    path = "/api/v1/namespaces/default/serviceaccounts/asked/token"
    token = api.call("POST", path, request).json["status"]["token"]
    of_account = api.call("POST", TOKENS, {"spec": {"token": token}}).json["status"]["user"]
    assert of_account == {
        "username": "system:serviceaccount:default:asked",
        "uid": made["metadata"]["uid"],
        "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
    }
    for spec in ({"token": "nonsense"}, {"token": "\u00e9"}, {"token": token, "audiences": ["other"]}):
        assert "authenticated" not in api.call("POST", TOKENS, {"spec": spec}).json["status"]


def test_an_administrator_who_impersonates_a_user_has_that_users_rights(tokens: tuple[Api, dict[str, str]]) -> None:
    api, known = tokens
    secrets = "/api/v1/namespaces/default/secrets"
    as_account = {"Impersonate-User": ACCOUNT}
    assert api.call("GET", secrets).status == 200
    assert api.call("GET", secrets, headers=as_account).status == 403
    assert api.call("GET", "/api/v1/namespaces/default/configmaps", headers=as_account).status == 200
    assert api.call("GET", secrets, headers={**as_account, "Impersonate-Group": "system:masters"}).status == 200
    who = {"Impersonate-User": "jane", "Impersonate-Uid": "u", "Impersonate-Extra-Known%2Fas": "x"}
    info = api.call("POST", SELF, {}, headers=who).json["status"]["userInfo"]
    assert info == {"username": "jane", "uid": "u", "groups": ["system:authenticated"], "extra": {"known/as": ["x"]}}
    refused = api.call("GET", "/api/v1/services", headers=as_account, token=known["reader"])
    assert (refused.status, "cannot impersonate" in refused.json["message"]) == (403, True)
    assert api.call("GET", secrets, headers={"Impersonate-Group": "system:masters"}).status == 400
    assert api.call("GET", secrets, headers={"Impersonate-User": "system:anonymous"}).status == 401


def test_reviews_are_discovered_and_have_no_other_form(api: Api) -> None:
    groups = [group["name"] for group in api.get("/apis")["groups"]]
    assert groups.index("authentication.k8s.io") < groups.index("networking.k8s.io")
    listed = {one["name"]: one["verbs"] for one in api.get("/apis/authorization.k8s.io/v1")["resources"]}
    assert listed["selfsubjectaccessreviews"] == ["create"]
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    path = ACCESS.format("selfsubjectaccessreviews")
    assert api.call("POST", path, {"spec": about("get", "services")}, headers=table).status == 406
    assert api.call("GET", path).status == 404
    assert api.call("POST", path, {"spec": 3}).status == 400
    assert api.call("POST", path, {"spec": {}}).status == 422
