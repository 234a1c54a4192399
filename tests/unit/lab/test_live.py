"""The parts of a live lab that only decide: its plan, percentiles, verdicts, kubeconfigs."""

import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.lab.latencies import merged, percentile, to_two_digits
from nodeagent.lab.live.api import Access, anonymous
from nodeagent.lab.live.plan import Settings, plan, pod_at
from nodeagent.lab.live.requests import LoadSample, TargetSample
from nodeagent.lab.live.tables import fault_table, load_text
from nodeagent.lab.live.verdict import is_quiet, judge
from nodeagent.lab.namespaces import LabError

SETTINGS = [
    Settings(nodes=nodes, pods=pods, ipv6=ipv6)
    for nodes in (1, 3, 50)
    for pods in (0, 2, 100)
    for ipv6 in (False, True)
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s.nodes} nodes, {s.pods} pods, ipv6={s.ipv6}")
def test_every_plan_can_be_built_and_gives_each_address_once(settings: Settings) -> None:
    settings.check()
    topology = plan(settings)
    topology.check()
    addresses = [address for member in topology.members for address in member.addresses]

    assert len(set(addresses)) == len(addresses)
    assert len(topology.nodes) == settings.nodes
    assert {len(node.pods) for node in topology.nodes} == {settings.pods + 1}, "and one that only asks"
    assert any(":" in address for address in addresses) is settings.ipv6


def test_a_new_pod_takes_the_first_address_nobody_has() -> None:
    settings = Settings()
    assert pod_at(settings, 1, 9, frozenset({"10.244.1.10", "10.244.1.12"})).addresses == ("10.244.1.11",)
    with pytest.raises(ValueError, match="no address is left on node-1"):
        pod_at(settings, 1, 9, frozenset(f"10.244.1.{host}" for host in range(256)))


@pytest.mark.parametrize(
    ("seconds", "microseconds"),
    [
        pytest.param(0.0, 0, id="nothing"),
        pytest.param(0.000087, 87, id="two digits"),
        pytest.param(0.0012399, 1200, id="four digits"),
        pytest.param(3.0, 3_000_000, id="seconds"),
    ],
)
def test_latencies_keep_two_digits(seconds: float, microseconds: int) -> None:
    assert to_two_digits(seconds) == microseconds


@given(st.floats(0.0, 1000.0))
def test_two_digits_are_at_most_a_tenth_too_low(seconds: float) -> None:
    kept = to_two_digits(seconds) / 1e6
    assert kept <= seconds
    assert seconds - kept <= seconds / 10 + 1e-6


@given(st.lists(st.integers(1, 99), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_a_value_that_many_do_not_exceed(values: list[int], share: float) -> None:
    counts = merged({value: 1} for value in values)
    found = percentile(counts, share)

    assert found is not None
    assert sum(value / 1e6 <= found for value in values) >= share * len(values)
    assert round(found * 1e6) in values


def test_there_is_no_percentile_of_nothing() -> None:
    assert percentile({}, 0.5) is None


def sample(
    at: float, answered: int, failed: int = 0, last_failure: float = 0.0, horizon: float | None = None
) -> LoadSample:
    failures = {"timeout": failed} if failed else {}
    way = TargetSample(
        "client", "NodePort 192.168.0.11:30000", {"echo-1-1": answered}, failures, {100: answered}, 0.0001
    )
    return LoadSample(at, at, (way,), last_failure, at if horizon is None else horizon)


def verdict(before: LoadSample, after: LoadSample, *, righted: float | None = None, recovered: bool = True) -> Any:
    return judge("cut", "cut", before, after, began=10.0, righted=righted, recovered=recovered, held=5, kept=4)


def test_only_what_failed_since_the_fault_counts() -> None:
    report = verdict(sample(10, 100, 3, 5.0), sample(20, 190, 10, 12.5), righted=12.0)

    assert (report.attempts, report.failed) == (97, 7)
    assert report.failures == {"timeout": 7}
    assert report.by_target == {"client → NodePort 192.168.0.11:30000": 7}
    assert (report.recovery, report.after) == (2.5, 0.5)
    assert report.seconds == 10


def test_nothing_failed_and_nothing_had_to_be_righted() -> None:
    report = verdict(sample(10, 100, 3, 5.0), sample(20, 190, 3, 5.0))

    assert (report.failed, report.recovery, report.after) == (0, 0.0, None)
    assert report.by_target == {}


def test_what_still_fails_has_not_recovered() -> None:
    report = verdict(sample(10, 100), sample(20, 100, 50, 19.9), righted=12.0, recovered=False)

    assert (report.recovery, report.after) == (None, None)
    assert "not seen" in fault_table([report])


def test_it_is_quiet_when_all_that_began_lately_is_known_to_be_well() -> None:
    assert is_quiet(sample(20, 1), since=19.0, quiet=0.5)
    assert not is_quiet(sample(20, 1), since=19.8, quiet=0.5)
    assert not is_quiet(sample(20, 1, 1, last_failure=19.7), since=10.0, quiet=0.5)
    assert not is_quiet(sample(20, 1, horizon=18.2), since=18.0, quiet=0.5), "one that began then has not ended"


def test_a_load_is_told_with_the_rate_since_the_last_look() -> None:
    text = load_text(sample(20, 150, 10), sample(10, 100)).splitlines()

    assert text[0].split() == [
        "FROM",
        "TO",
        "ANSWERED",
        "FAILED",
        "PER",
        "SECOND",
        "P50",
        "P90",
        "P99",
        "SLOWEST",
        "FAILURES",
    ]
    assert text[1].split()[:6] == ["client", "NodePort", "192.168.0.11:30000", "150", "10", "6"]
    assert text[1].endswith("10 timeout")


def kubeconfig(**cluster: object) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.7:6443/k8s/", **cluster}}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def test_a_kubeconfig_for_another_place_names_the_server_and_needs_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("PEM")
    (tmp_path / "token").write_text("secret\n")
    moved = Access(kubeconfig(**{"certificate-authority": "ca.pem"}), tmp_path).moved_to("127.0.0.1", 4711)

    cluster = moved["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:4711/k8s"
    assert cluster["tls-server-name"] == "192.0.2.7"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"PEM"
    assert moved["users"][0]["user"] == {"token": "secret"}


def test_a_server_without_tls_has_neither_name_nor_trust() -> None:
    cluster = anonymous("http://192.0.2.7:8080").moved_to("192.168.0.2", 6443)["clusters"][0]["cluster"]

    assert cluster == {"server": "http://192.168.0.2:6443"}


@pytest.mark.parametrize(
    "document", [{}, {"current-context": "x", "contexts": []}, []], ids=["empty", "unknown", "list"]
)
def test_a_kubeconfig_without_a_context_is_refused(document: Any) -> None:
    with pytest.raises(LabError, match="no usable current context"):
        Access(document, Path())
