"""`nodeagent config check --manifests`: what the agent and what an API server would say, with file and line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result

from nodeagent.cli.main import main

NOBODY = 65534
GOOD = """\
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  clusterIP: 10.96.0.10
  ports:
    - name: http
      port: 80
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels:
    kubernetes.io/service-name: web
addressType: IPv4
ports:
  - name: http
    port: 8080
endpoints:
  - addresses: [10.244.1.10]
"""


def check(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["config", "check", "--manifests", str(directory), "--node-name", "n", *options])


def printed(directory: Path, text: str, name: str = "a.yaml") -> list[str]:
    (directory / name).write_text(text)
    result = check(directory)
    assert result.exit_code == 2, result.output
    *lines, last = result.stderr.splitlines()
    plural = "" if len(lines) == 1 else "s"
    assert last == f"nodeagent: manifest directory {directory}: {len(lines)} problem{plural}"
    return lines


def test_good_manifests_are_good(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    result = check(tmp_path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == f"ok: manifest directory {tmp_path}"


def test_the_check_of_manifests_needs_no_root() -> None:
    command = [sys.executable, "-m", "nodeagent", "config", "check", "--node-name", "n", "--manifests"]
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / "a.yaml").write_text(GOOD)
        nobody = NOBODY if os.geteuid() == 0 else None
        result = subprocess.run(
            [*command, directory], check=False, capture_output=True, text=True, user=nobody, cwd=directory
        )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("good", "bad", "line"),
    [
        pytest.param(
            "port: 80\n",
            "port: 80\n      nodeport: 1\n",
            "file a.yaml:10: UnknownField: Service default/web: spec.ports[0].nodeport: unknown field; did you mean nodePort?",
            id="unknown field",
        ),
        pytest.param(
            "addressType: IPv4",
            "addressType: ipv4",
            'file a.yaml:17: UnknownValue: EndpointSlice default/web-1: addressType: Unsupported value: "ipv4": supported'
            ' values: "FQDN", "IPv4", "IPv6"; did you mean IPv4?',
            id="wrong case",
        ),
        pytest.param(
            "kind: EndpointSlice",
            "kind: Endpointslice",
            "file a.yaml:11: UnknownKind: there is no kind Endpointslice in apiVersion discovery.k8s.io/v1; did you mean"
            " EndpointSlice?; this is not read",
            id="unknown kind",
        ),
        pytest.param(
            "service-name: web",
            "service-name: webb",
            "file a.yaml:11: UnknownService: EndpointSlice default/web-1: there is no Service default/webb; did you mean web?",
            id="no such Service",
        ),
        pytest.param(
            "name: http\n    port: 8080",
            "name: htttp\n    port: 8080",
            "file a.yaml:11: UnknownPortName: EndpointSlice default/web-1: Service default/web has no port 'htttp'/TCP; did"
            " you mean http?",
            id="a port name nobody has",
        ),
        pytest.param(
            "name: web\nspec",
            "name: web_\nspec",
            "file a.yaml:4: RefusedByAPI: Service default/web_: metadata.name: Invalid value:",
            id="a name the API server would refuse",
        ),
        pytest.param(
            "clusterIP: 10.96.0.10",
            "clusterIP: 10.96.0.10\n  selector: [a]",
            "file a.yaml:7: RefusedByAPI: Service default/web: spec.selector: json: cannot unmarshal array into Go struct field",
            id="a type of a field that the agent does not read",
        ),
        pytest.param(
            "clusterIP: 10.96.0.10",
            "clusterIP: 10.96.0.10\n  type: LoadBalancer\n  externalTrafficPolicy: Local\n  healthCheckNodePort: 70000",
            "file a.yaml:1: InvalidPort: Service default/web: healthCheckNodePort 70000 is not within 1-65535",
            id="what only the translation sees",
        ),
        pytest.param(
            "port: 80\n",
            "port: eighty\n",
            "file a.yaml:9: InvalidManifest: Service web: spec.ports[0].port: expected int, got str; this is not in effect",
            id="what the agent cannot read",
        ),
    ],
)
def test_each_mistake_is_named_with_file_and_line(tmp_path: Path, good: str, bad: str, line: str) -> None:
    assert GOOD.count(good) == 1
    lines = printed(tmp_path, GOOD.replace(good, bad))
    assert any(found.startswith(line) for found in lines), lines
    assert len(lines) == len(set(lines))


def test_json_is_checked_likewise(tmp_path: Path) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.0.999"}}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [service]}, indent=1)
    lines = printed(tmp_path, text, "a.json")
    assert any("RefusedByAPI: Service default/web: spec.clusterIPs[0]: Invalid value" in line for line in lines)
    assert any("RefusedByAPI: Service default/web: spec.ports: Required value" in line for line in lines)


def test_two_services_with_one_address_are_reported_at_the_younger_one(tmp_path: Path) -> None:
    other = (
        GOOD.replace("name: web\nspec", "name: web2\nspec")
        .replace("web-1", "web2-1")
        .replace("name: web\na", "name: web2\na")
    )
    (line,) = printed(tmp_path, f"{GOOD}---\n{other}")
    assert line.startswith(
        "file a.yaml:24: AddressConflict: Service default/web2: ClusterIP 10.96.0.10 port 80/TCP belongs"
    )


def test_a_name_that_a_terminal_would_obey_is_escaped(tmp_path: Path) -> None:
    for line in printed(tmp_path, GOOD.replace("name: web\nspec", 'name: "web\\e[2J\\n"\nspec')):
        assert line.isprintable()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    result = check(tmp_path / "none")
    assert result.exit_code == 2
    assert "No such file or directory" in result.stderr
