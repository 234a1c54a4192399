"""PodTemplates and Deployments: stored, checked and shown as in Kubernetes, although nothing here makes pods of them."""

import copy
from typing import Any

CORE = "/api/v1/namespaces/{}"
APPS = "/apis/apps/v1/namespaces/{}/deployments"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
SPEC = {"containers": [{"name": "web", "image": "registry.example/web:1"}]}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": SPEC},
    },
}


def template(name: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": SPEC},
    }


def test_a_pod_template_has_what_a_pod_would_get(api: Any, demo: str) -> None:
    path = f"{CORE.format(demo)}/podtemplates"
    made = api.call("POST", path, template("one"))
    assert made.status == 201, made.body
    assert made.json["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    refused = api.call("POST", path, {"metadata": {"name": "two"}, "template": {"spec": {"containers": []}}})
    assert (refused.status, "template.spec.containers: Required value" in refused.json["message"]) == (422, True)
    changed = {**made.json, "template": {**made.json["template"], "metadata": {"labels": {"a": "c"}}}}
    replaced = api.call("PUT", f"{path}/one", changed)
    assert (replaced.status, replaced.json["metadata"]["generation"]) == (200, 2)
    assert api.call("DELETE", f"{path}/one").json["kind"] == "PodTemplate"


def test_pod_templates_come_in_pages_of_a_table(api: Any, demo: str) -> None:
    path = f"{CORE.format(demo)}/podtemplates"
    for number in range(3):
        assert api.call("POST", path, template(f"t-{number}", kept="no")).status == 201
    first = api.call("GET", f"{path}?limit=2", headers=TABLE).json
    assert [row["cells"][0] for row in first["rows"]] == ["t-0", "t-1"]
    rest = api.call("GET", f"{path}?continue={first['metadata']['continue']}", headers=TABLE).json
    assert [row["cells"][:4] for row in rest["rows"]] == [["t-2", "web", "registry.example/web:1", "a=b"]]
    assert api.call("DELETE", f"{path}?labelSelector=kept%3Dno").status == 200
    assert api.call("GET", path).json["items"] == []


def test_who_creates_a_deployment_is_warned_that_nothing_runs(api: Any, demo: str) -> None:
    made = api.call("POST", APPS.format(demo), DEPLOYMENT)
    assert made.status == 201, made.body
    assert "makes no pods" in made.headers["Warning"]
    assert made.json["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}
    status = {**made.json, "status": {"replicas": 3, "readyReplicas": 2}, "spec": {}}
    assert api.call("PUT", f"{APPS.format(demo)}/web/status", status).json["spec"] == made.json["spec"]
    (row,) = api.call("GET", APPS.format(demo), headers=TABLE).json["rows"]
    assert row["cells"][:4] == ["web", "2/3", 0, 0]


def test_an_invalid_deployment_is_refused(api: Any, demo: str) -> None:
    def refusal(method: str, path: str, **spec: Any) -> Any:
        wrong = copy.deepcopy(DEPLOYMENT)
        wrong["spec"] |= spec  # type: ignore[operator]
        answer = api.call(method, path, wrong)
        assert answer.status == 422, answer.body
        return answer.json["message"]

    path = APPS.format(demo)
    other = {"matchLabels": {"app": "other"}}
    assert "`selector` does not match template `labels`" in refusal("POST", path, selector=other)
    assert "empty selector is invalid for deployment" in refusal("POST", path, selector={})
    assert "spec.replicas: Invalid value: -1" in refusal("POST", path, replicas=-1)
    assert "spec.strategy.type: Unsupported value" in refusal("POST", path, strategy={"type": "Some"})
    once = {"metadata": {"labels": {"app": "web"}}, "spec": {**SPEC, "restartPolicy": "Never"}}
    assert "spec.template.spec.restartPolicy: Unsupported value" in refusal("POST", path, template=once)
    assert api.call("POST", path, DEPLOYMENT).status == 201
    moved = {"metadata": {"labels": {"app": "other"}}, "spec": SPEC}
    assert "field is immutable" in refusal("PUT", f"{path}/web", selector=other, template=moved)


def test_unknown_and_duplicate_fields_of_a_template_are_named(api: Any, demo: str) -> None:
    raw = (
        b'{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "odd": 1}, "spec": {"paused": true,'
        b' "paused": false, "unknown": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels":'
        b' {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "b", "imagePullPolicy": "Always",'
        b' "imagePullPolicy": "Never", "nested": 1}]}}}}'
    )
    answer = api.call("POST", f"{APPS.format(demo)}?fieldValidation=Strict", raw=raw)
    assert answer.status == 400
    for said in (
        'unknown field "metadata.odd"',
        'unknown field "spec.unknown"',
        'duplicate field "spec.paused"',
        'unknown field "spec.template.spec.containers[0].nested"',
        'duplicate field "spec.template.spec.containers[0].imagePullPolicy"',
    ):
        assert said in answer.json["message"]


def test_a_field_that_nobody_applies_any_longer_goes(api: Any, demo: str) -> None:
    path = f"{APPS.format(demo)}/web?fieldManager={{}}"
    applied = copy.deepcopy(DEPLOYMENT)
    assert api.call("PATCH", path.format("first"), applied, headers=APPLY).status == 201
    applied["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]  # type: ignore[index]
    for manager in ("first", "second"):
        assert api.call("PATCH", path.format(manager), applied, headers=APPLY).status == 200
    without = api.call("PATCH", path.format("first"), DEPLOYMENT, headers=APPLY).json
    assert without["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    gone = api.call("PATCH", path.format("second"), DEPLOYMENT, headers=APPLY).json
    assert "env" not in gone["spec"]["template"]["spec"]["containers"][0]
