"""The controllers of a real kube-controller-manager do their work on our API server, and have nothing to complain of."""

from pathlib import Path

import pytest

from tests.conformance.api.control_plane import ControlPlane, running
from tests.harness.kube_apiserver import PROGRAM, needs_kube_apiserver, until

pytestmark = [pytest.mark.kernel, needs_kube_apiserver]
CONFIGMAPS = "/api/v1/namespaces/{}/configmaps"
USUAL = (
    *("No authentication-kubeconfig", "No authorization-kubeconfig", "The manifest file is empty"),
    *('configmaps \\"kube-root-ca.crt\\" already exists',),
)
"""What it says about its own options at every start, and where our server was faster with what both publish."""


def test_namespaces_are_emptied_and_what_has_lost_its_owner_goes(tmp_path: Path) -> None:
    assert PROGRAM is not None
    with running(PROGRAM.parent, tmp_path) as plane:
        collect(plane)
        empty(plane)
        assert [line for line in plane.complaints() if not any(usual in line for usual in USUAL)] == []


def collect(plane: ControlPlane) -> None:
    """The garbage collector deletes a dependent with its owner, and no other object."""
    path = CONFIGMAPS.format("default")
    _, owner = plane.call("POST", path, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    for name, owners in (("owned", [reference]), ("free", [])):
        assert plane.call("POST", path, {"metadata": {"name": name, "ownerReferences": owners}})[0] == 201
    assert plane.call("DELETE", f"{path}/owner")[0] == 200
    until(lambda: plane.call("GET", f"{path}/owned")[0] == 404, "what lost its owner is still there")
    assert plane.call("GET", f"{path}/free")[0] == 200


def empty(plane: ControlPlane) -> None:
    """A namespace that is deleted goes, with all that is in it."""
    assert plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": "demo"}})[0] == 201
    for name in ("kube-root-ca.crt", "more"):
        if name == "more":
            assert plane.call("POST", CONFIGMAPS.format("demo"), {"metadata": {"name": name}})[0] == 201
        until(lambda name=name: plane.call("GET", f"{CONFIGMAPS.format('demo')}/{name}")[0] == 200, name)  # type: ignore[misc]
    assert plane.call("DELETE", "/api/v1/namespaces/demo")[0] == 200
    until(lambda: plane.call("GET", "/api/v1/namespaces/demo")[0] == 404, "the namespace is still there")
