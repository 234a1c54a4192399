"""Where kube-proxy is placed: what is sent, as the API server merges it (RFC 7386), and that the way back ends where it began."""

from typing import Any

import pytest

from nodeagent.cli.migration.found import DaemonSet
from nodeagent.cli.migration.placement import (
    is_taken_out,
    leave_all_nodes,
    leave_single_nodes,
    leaves_single_nodes,
    restore_everywhere,
)
from tests.unit.cli.migration.cluster import NOT_ALONE, required

ZONE: dict[str, object] = {"key": "zone", "operator": "In", "values": ["x"]}
DISK: dict[str, object] = {"key": "disk", "operator": "Exists"}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
POD_SPECS: dict[str, dict[str, Any]] = {
    "of kubeadm": {"nodeSelector": {"kubernetes.io/os": "linux"}},
    "without a selector": {},
    "with alternatives": {"affinity": required([ZONE], [DISK])},
    "with a preference": {"affinity": {"nodeAffinity": PREFERRED}},
    "with an affinity to pods": {"affinity": {"podAntiAffinity": {"x": []}}},
}
each_pod_spec = pytest.mark.parametrize("spec", POD_SPECS.values(), ids=POD_SPECS)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def daemonset(spec: dict[str, Any]) -> DaemonSet:
    return DaemonSet(spec.get("nodeSelector", {}), spec.get("affinity", {}))


def patched(spec: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = merged({"spec": {"template": {"spec": spec}}}, patch)["spec"]["template"]["spec"]
    return result


@each_pod_spec
def test_every_way_out_and_back_ends_where_it_began(spec: dict[str, Any]) -> None:
    single = patched(spec, leave_single_nodes(daemonset(spec)))
    assert leaves_single_nodes(daemonset(single))
    assert not leaves_single_nodes(daemonset(spec))
    out = patched(single, leave_all_nodes(daemonset(single)))
    assert is_taken_out(daemonset(out))
    assert not leaves_single_nodes(daemonset(out))
    for state in (single, out, patched(spec, leave_all_nodes(daemonset(spec)))):
        back = patched(state, restore_everywhere(daemonset(state)))
        back = {key: value for key, value in back.items() if value != {}}
        assert back == spec


def test_each_alternative_gets_the_condition() -> None:
    spec = {"affinity": required([ZONE], [DISK])}
    assert patched(spec, leave_single_nodes(daemonset(spec)))["affinity"] == required(
        [ZONE, NOT_ALONE], [DISK, NOT_ALONE]
    )


def test_the_condition_is_added_once() -> None:
    once = patched({}, leave_single_nodes(DaemonSet()))
    assert patched(once, leave_single_nodes(daemonset(once))) == once == {"affinity": required([NOT_ALONE])}


def test_the_selector_of_others_stays() -> None:
    spec = {"nodeSelector": {"kubernetes.io/os": "linux"}}
    out = patched(spec, leave_all_nodes(daemonset(spec)))
    assert out["nodeSelector"] == {"kubernetes.io/os": "linux", "nodeagent.io/kube-proxy": "taken-out"}
