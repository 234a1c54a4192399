"""A kubeconfig of a role opens what the role may do, at a server that is running already."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from nodeagent.cli.apiserver import apiserver_command

SERVICES = "/api/v1/namespaces/default/services"
EVENTS = "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(apiserver_command, arguments)


@pytest.fixture
def agent(start: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Calls as the agent of node-a."""
    api = start()
    output = tmp_path / "agent.kubeconfig"
    options = ["--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{api.server.port}"]
    made = run(*options, "kubeconfig", "--role", "agent", "--name", "node-a", "--output", str(output))
    assert made.exit_code == 0, made.output
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    config = yaml.safe_load(output.read_text())
    assert config["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{api.server.port}"
    token = config["users"][0]["user"]["token"]
    again = run(*options, "kubeconfig", "--role", "agent", "--name", "node-a")
    assert yaml.safe_load(again.output)["users"][0]["user"]["token"] == token

    def call(method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> int:
        return int(api.call(method, path, body, headers, token=token).status)

    return call


def test_an_agent_does_its_work_and_nothing_else(agent: Callable[..., int]) -> None:
    merge = {"Content-Type": "application/merge-patch+json"}
    assert agent("GET", SERVICES) == 200
    assert agent("GET", f"{SERVICES}?watch=1&timeoutSeconds=1") == 200
    assert agent("POST", SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}) == 403
    assert agent("GET", "/api/v1/secrets") == 403
    about = {"kind": "Service", "name": "kubernetes", "namespace": "default"}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "Seen", "message": "a", "type": "Normal"}
    assert agent("POST", EVENTS, event) == 201
    assert agent("PATCH", f"{EVENTS}/e", {"count": 2}, merge) == 200
    assert agent("DELETE", f"{EVENTS}/e") == 403
    lease = {"metadata": {"name": "node-a"}, "spec": {"holderIdentity": "node-a"}}
    assert agent("POST", LEASES, lease) == 201
    assert agent("PATCH", f"{LEASES}/node-a", {"spec": {"leaseDurationSeconds": 40}}, merge) == 200
    others: list[Any] = [{"name": "node-b"}, {"generateName": "node-a"}, {}, None, {"name": 1}, []]
    for other in others:
        assert agent("POST", LEASES, {"metadata": other}) in {400, 403}
    assert agent("PATCH", f"{LEASES}/node-b", {"spec": {"leaseDurationSeconds": 40}}, merge) == 403


def test_a_removed_user_has_no_rights_at_once(start: Callable[..., Any], tmp_path: Path) -> None:
    api = start()
    made = run("--data-dir", str(tmp_path), "kubeconfig", "--role", "reader", "--name", "guest")
    token = yaml.safe_load(made.output)["users"][0]["user"]["token"]
    assert api.call("GET", SERVICES, token=token).status == 200
    tokens = tmp_path / "pki" / "tokens.csv"
    tokens.write_text("".join(line for line in tokens.read_text().splitlines(keepends=True) if "guest" not in line))
    assert api.call("GET", SERVICES, token=token).status == 401
    assert api.call("GET", SERVICES).status == 200


def test_a_credential_that_cannot_be_made_is_one_line(start: Callable[..., Any], tmp_path: Path) -> None:
    for arguments, said in (
        (["kubeconfig", "--role", "agent"], "--data-dir is needed"),
        (
            ["--data-dir", str(tmp_path / "none"), "kubeconfig", "--role", "agent"],
            "the server creates it at its first start",
        ),
    ):
        refused = run(*arguments)
        assert (refused.exit_code, said in str(refused.output) + str(refused.exception)) == (2, True)
    start()
    for arguments in (["--role", "agent", "--name", "a,b"], ["--role", "agent", "--name", "admin"]):
        assert run("--data-dir", str(tmp_path), "kubeconfig", *arguments).exit_code == 2
    assert json.dumps(yaml.safe_load((tmp_path / "pki" / "tokens.csv").read_text()))
