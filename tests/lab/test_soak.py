"""A short soak, with the faults that are over in a second or two; `make soak` takes longer and breaks more (tests/soak)."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.harness.effort import EFFORT
from tests.harness.etcd import needs_etcd
from tests.harness.warm_start import WarmLauncher
from tests.soak.laws import FOLLOWS_AFTER
from tests.soak.offers import spec_of
from tests.soak.planted import BUGS, program_of
from tests.soak.records import Step
from tests.soak.run import Options, Run
from tests.soak.schedule import Shape, schedule

NODES = ("node-1", "node-2", "node-3")
SEED = "quick 3590"
"""Of its schedules of five seconds one with ten kinds of steps."""
INTERVAL = 0.25
"""Seconds between two connections of a client: other tests run beside this one."""
LONG = 15.0
"""Seconds that what is wrong lasts, for a machine that is many times slower than one that is idle."""
STICKY = [choice for choice in range(1, 60) if spec_of(choice)["sessionAffinity"] == "ClientIP" and choice % 5][:5]
OF_PLANTED = {
    "ignores-deletes": [Step("pod-unready", node, 0.5, LONG) for node in NODES] + [Step("flush", "node-1", LONG)],
    "keeps-affinity": [
        *(Step("service", f"shop-{number}", choice=choice) for number, choice in enumerate(STICKY, start=1)),
        *(Step("pod-unready", node, 3.0, LONG) for node in NODES),
        Step("flush", "node-1", LONG),
    ],
    "old-names": [Step("service", "shop-1", choice=1), Step("flush", "node-1", LONG)],
    "flushes-at-start": [Step("agent-restart", node, 2.0) for node in (*NODES, *NODES)],
    "forgets-connections": [Step("service", "shop-1", 2.0, choice=choice) for choice in range(1, 5)],
    "loses-descriptors": [Step("service", "shop-1", 0.2, choice=choice) for choice in range(1, 9)],
}
"""Steps in which a planted defect shows."""
UPGRADES = [Step("agent-upgrade", node, 2.0) for node in (*NODES, *NODES)]
BESIDE = {
    False: [
        *(Step("dns-memory", node, 0.1, 1.0) for node in NODES),
        *(Step("agent-upgrade", node, 0.3) for node in NODES),
        Step("api-memory", "", 0.1, 1.0),
        Step("service", "shop-1", 0.3, choice=1),
    ],
    True: [
        Step("etcd-kill", "", 0.1, 1.0),
        Step("etcd-stop", "", 5.0, 1.0),
        Step("etcd-restart", "", 5.0),
        Step("etcd-space", "", 5.0, 1.0),
        *(Step("agent-memory", node, 3.0, 1.0) for node in NODES),
        Step("service", "shop-1", 0.3, choice=1),
    ],
}
"""Whether there is an etcd → faults for which the laws allow something, and which hide no defect."""


@pytest.mark.slow
def test_no_law_is_violated(network_namespaces: None, warm_launcher: WarmLauncher) -> None:
    steps = schedule(SEED, 5 * EFFORT, Shape(NODES, quick=True))
    with (
        TemporaryDirectory(prefix="nodeagent-soak-") as base,
        Run(Options(Path(base), interval=INTERVAL), warm_launcher.fork_server, print) as run,
    ):
        history, found = run.round(steps)
    assert found == []
    assert len(history.attempts) > 50
    assert len(history.faults) >= 3


@pytest.mark.slow
@pytest.mark.at_length
@pytest.mark.parametrize(
    ("bug", "steps"),
    [
        *(pytest.param(bug, OF_PLANTED[bug], id=bug) for bug in sorted(BUGS)),
        pytest.param("flushes-at-start", UPGRADES, id="flushes-at-an-upgrade"),
    ],
)
def test_a_planted_defect_is_found_by_its_law(
    network_namespaces: None, warm_launcher: WarmLauncher, bug: str, steps: list[Step]
) -> None:
    with TemporaryDirectory(prefix="nodeagent-soak-") as base:
        options = Options(Path(base), program_of(bug), interval=INTERVAL)
        with Run(options, warm_launcher.fork_server, print) as run:
            _, found = run.round(steps)
    assert BUGS[bug][0] in {violation.law for violation in found}


@pytest.mark.slow
@pytest.mark.at_length
@pytest.mark.parametrize(
    "has_etcd", [pytest.param(False, id="own store"), pytest.param(True, id="etcd", marks=needs_etcd)]
)
def test_faults_hide_no_planted_defect(
    network_namespaces: None, warm_launcher: WarmLauncher, tmp_path: Path, has_etcd: bool
) -> None:
    with TemporaryDirectory(prefix="nodeagent-soak-") as base:
        etcd = tmp_path / "etcd" if has_etcd else None
        options = Options(Path(base), program_of("ignores-deletes"), interval=INTERVAL, etcd=etcd)
        with Run(options, warm_launcher.fork_server, print) as run:
            allowed = Step("service-delete", "shop-1", (max(FOLLOWS_AFTER.values()) + 1.0) * run.slowest)
            history, found = run.round([*BESIDE[has_etcd], allowed, *OF_PLANTED["ignores-deletes"]])
    assert {step.kind for step in BESIDE[has_etcd]} - {"service"} <= {fault.kind for fault in history.faults}
    assert "reaches-valid" in {violation.law for violation in found}


@pytest.mark.slow
def test_an_upgrade_changes_the_layout_of_the_tables_and_back(
    network_namespaces: None, warm_launcher: WarmLauncher
) -> None:
    def sets() -> str:
        return run.stage.world.run("node-1", ["nft", "list", "table", "ip", "nodeagent"]).stdout

    with (
        TemporaryDirectory(prefix="nodeagent-soak-") as base,
        Run(Options(Path(base), interval=INTERVAL), warm_launcher.fork_server, print) as run,
    ):
        run.breaker.carry_out(Step("agent-upgrade", "node-1"))
        run.breaker.undo_all()
        assert "hairpin-of-another-release" in sets()
        history, found = run.round([Step("agent-upgrade", "node-2")])
        assert "hairpin-of-another-release" not in sets()
    assert found == []
    assert [(fault.kind, fault.where) for fault in history.faults].count(("agent-upgrade", "node-2")) == 2
