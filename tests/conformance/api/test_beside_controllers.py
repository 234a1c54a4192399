"""The controllers of a real kube-controller-manager do their work on our API server, and have nothing to complain of."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance.api.control_plane import ControlPlane, running
from tests.harness.kube_apiserver import PROGRAM, needs_kube_apiserver, until

pytestmark = [pytest.mark.kernel, needs_kube_apiserver]
CONFIGMAPS = "/api/v1/namespaces/{}/configmaps"
DEFAULT = CONFIGMAPS.format("default")
USUAL = (
    *("No authentication-kubeconfig", "No authorization-kubeconfig", "The manifest file is empty"),
    *('configmaps \\"kube-root-ca.crt\\" already exists',),
)
"""What it says about its own options at every start, and where our server was faster with what both publish."""


def test_namespaces_are_emptied_and_what_has_lost_its_owner_goes(tmp_path: Path) -> None:
    assert PROGRAM is not None
    with running(PROGRAM.parent, tmp_path) as plane:
        collect(plane)
        orphan(plane)
        delete_in_foreground(plane)
        empty(plane)
        assert [line for line in plane.complaints() if not any(usual in line for usual in USUAL)] == []


def collect(plane: ControlPlane) -> None:
    """The garbage collector deletes a dependent with its owner, and no other object."""
    own(plane, "owner", "owned")
    assert plane.call("POST", DEFAULT, {"metadata": {"name": "free"}})[0] == 201
    assert plane.call("DELETE", f"{DEFAULT}/owner")[0] == 200
    until(lambda: plane.call("GET", f"{DEFAULT}/owned")[0] == 404, "what lost its owner is still there")
    assert plane.call("GET", f"{DEFAULT}/free")[0] == 200


def orphan(plane: ControlPlane) -> None:
    """A dependent outlives an owner that is deleted with the policy Orphan, and has no owner then."""
    own(plane, "parent", "child")
    assert plane.call("DELETE", f"{DEFAULT}/parent", {"propagationPolicy": "Orphan"})[0] == 200
    until(lambda: plane.call("GET", f"{DEFAULT}/parent")[0] == 404, "the owner waits for ever")
    status, child = plane.call("GET", f"{DEFAULT}/child")
    assert (status, child["metadata"].get("ownerReferences")) == (200, None)
    assert "deletionTimestamp" not in child["metadata"]


def delete_in_foreground(plane: ControlPlane) -> None:
    """An owner that is deleted with the policy Foreground stays until the dependents that block it are gone."""
    own(plane, "last", "first", finalizers=["example.com/busy"])
    assert plane.call("DELETE", f"{DEFAULT}/last", {"propagationPolicy": "Foreground"})[0] == 200
    until(lambda: "deletionTimestamp" in plane.call("GET", f"{DEFAULT}/first")[1]["metadata"], "dependents stay")
    status, waiting = plane.call("GET", f"{DEFAULT}/last")
    assert (status, waiting["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
    _, busy = plane.call("GET", f"{DEFAULT}/first")
    del busy["metadata"]["finalizers"]
    assert plane.call("PUT", f"{DEFAULT}/first", busy)[0] == 200
    until(lambda: plane.call("GET", f"{DEFAULT}/last")[0] == 404, "the owner waits for ever")


def own(plane: ControlPlane, owner: str, owned: str, finalizers: Sequence[str] = ()) -> None:
    """Creates an owner and a dependent that blocks its deletion in the foreground."""
    _, made = plane.call("POST", DEFAULT, {"metadata": {"name": owner}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": made["metadata"]["uid"]}
    owners = [{**reference, "blockOwnerDeletion": True}]
    metadata = {"name": owned, "ownerReferences": owners, "finalizers": list(finalizers)}
    assert plane.call("POST", DEFAULT, {"metadata": metadata})[0] == 201


def empty(plane: ControlPlane) -> None:
    """A namespace that is deleted goes, with all that is in it."""
    assert plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": "demo"}})[0] == 201
    for name in ("kube-root-ca.crt", "more"):
        if name == "more":
            assert plane.call("POST", CONFIGMAPS.format("demo"), {"metadata": {"name": name}})[0] == 201
        until(lambda name=name: plane.call("GET", f"{CONFIGMAPS.format('demo')}/{name}")[0] == 200, name)  # type: ignore[misc]
    assert plane.call("DELETE", "/api/v1/namespaces/demo")[0] == 200
    until(lambda: plane.call("GET", "/api/v1/namespaces/demo")[0] == 404, "the namespace is still there")
