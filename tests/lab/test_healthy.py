"""Every command's first line calls a fresh lab with default options healthy, and one with both families, and a fault is seen."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.warm_start import WarmLauncher
from tests.lab.conftest import ROOT, Bench, bench_of_its_own

NODEAGENT = (sys.executable, "-m", "nodeagent")

KUBECTL = ROOT / ".tools" / "kubectl-1.32" / "kubectl"
FORWARD_NOTHING = "table inet shut { chain f { type filter hook forward priority 0; policy drop; }; }"


@pytest.fixture(scope="module", params=[(), ("--ipv6",)], ids=["defaults", "both families"])
def shared(network_namespaces: None, warm_launcher: WarmLauncher, request: pytest.FixtureRequest) -> Iterator[Bench]:
    with bench_of_its_own(warm_launcher) as found:
        found.do("up", *request.param)
        yield found


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("check",), "healthy"),
        (("explain",), "healthy"),
        (("explain", "--probe"), "healthy"),
        (("explain", "kube-system/kube-dns"), "healthy"),
        (("explain", "echo"), "healthy"),
        (("problems",), "healthy"),
        (("trace", "node/node-1", "svc/echo:tcp"), "arrives: "),
        (("diff",), "same: "),
        (("dns", "echo.default"), "echo.default.svc.cluster.local. A: NOERROR"),
        (("top", "--once", "--every", "0.1"), "SERVICE"),
        (("show",), "SERVICE"),
        (("journal",), "AT"),
        (("log-level",), "info"),
        (("version",), "PART"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "first line",
)
def test_the_first_line_says_that_all_is_well(shared: Any, command: tuple[str, ...], says: str) -> None:
    printed = shared.do("exec", "node-1", "--", *NODEAGENT, *command)
    assert printed.startswith(says), printed


def test_applying_the_labs_own_objects_would_change_nothing(shared: Any, tmp_path: Path) -> None:
    """`plan`, of its objects as manifests. The control: without them it would change something."""
    kubectl = [str(KUBECTL), "--kubeconfig", shared.do("kubeconfig").strip()]
    wanted = "services,endpointslices,nodes,servicecidrs"
    objects = subprocess.run([*kubectl, "get", wanted, "-A", "-o", "yaml"], check=True, capture_output=True).stdout
    (tmp_path / "all.yaml").write_bytes(objects)
    command = ("exec", "node-1", "--", *NODEAGENT, "plan", "--manifests")
    assert shared.do(*command, str(tmp_path)).startswith("nothing would change\n")
    (tmp_path / "nothing").mkdir()
    assert not shared.do(*command, str(tmp_path / "nothing")).startswith("nothing would change")


def test_a_bundle_is_written(shared: Any, tmp_path: Path) -> None:
    shared.do("exec", "node-1", "--", *NODEAGENT, "bundle", str(tmp_path / "report.tar.gz"))
    assert (tmp_path / "report.tar.gz").stat().st_size > 0


def test_a_fault_is_seen_and_its_end(shared: Any) -> None:
    """The control."""
    shared.do("exec", "node-1", "--", "nft", FORWARD_NOTHING)
    try:
        for command in (("check",), ("explain", "echo")):
            outcome = shared.run("exec", "node-1", "--", *NODEAGENT, *command)
            assert outcome.status == 1
            assert "inet shut, chain f" in outcome.output.partition("\n")[0]
    finally:
        shared.do("exec", "node-1", "--", "nft", "delete table inet shut")
    assert shared.do("exec", "node-1", "--", *NODEAGENT, "explain", "echo").startswith("healthy")


def test_the_agent_shows_when_its_credentials_expire(shared: Any, eventually: Callable[..., None]) -> None:
    """Also the certificate that the API server shows."""

    def shown() -> bool:
        text = shared.do("exec", "node-1", "--", "curl", "-sS", "http://127.0.0.1:10249/metrics")
        lines = [line for line in text.splitlines() if line.startswith("nodeagent_credential_expiration_timestamp_")]
        ends = {line.partition('credential="')[2].partition('"')[0]: float(line.split()[-1]) for line in lines}
        server = [end for what, end in ends.items() if what.startswith("certificate of the API server ")]
        return "certificate authority" in ends and bool(server) and min(ends.values()) > time.time()

    eventually(shown)
