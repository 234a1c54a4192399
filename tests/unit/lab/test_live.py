"""The parts of a live lab that only decide: its plan, percentiles, verdicts, kubeconfigs."""

import asyncio
import base64
import json
import math
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.lab.api import Access, anonymous
from nodeagent.lab.directory import base_directory
from nodeagent.lab.fault_verdict import FaultTiming, NotDone, OpenConnections, Promise, failing_paths, is_well, judge
from nodeagent.lab.lab_plan import Settings, plan, pod_at
from nodeagent.lab.lab_thread import Worker
from nodeagent.lab.load_generator import check_rate
from nodeagent.lab.net.latencies import merged, percentile, to_two_digits
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.report_tables import fault_table, load_text
from nodeagent.lab.supervisor_messages import FaultReport, FaultVerdict, LoadSample, ServicePath, WayCost, WaySample

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


def test_labs_are_below_the_directory_that_is_named_wherever_a_supervisor_runs(tmp_path: Path) -> None:
    assert base_directory({"NODEAGENT_LAB_DIR": "labs"}) == Path.cwd() / "labs"
    assert base_directory({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "nodeagent-lab"
    assert base_directory({"XDG_RUNTIME_DIR": str(tmp_path / "none")}) == base_directory({})


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


NOTHING_PROMISED = Promise()
WAY = ServicePath("client", "outside", "NodePort", "192.168.0.11", 30000)
OTHER_WAY = ServicePath("caller-1", "pod", "ClusterIP", "fd00:10:96::7", 80)


def seen_on(
    way: ServicePath, answered: int, failed: int = 0, last_answer: float = 0.0, last_failure: float = 0.0
) -> WaySample:
    failures = {"timeout": failed} if failed else {}
    return WaySample(way, {"echo-1-1": answered}, failures, {100: answered}, 0.0001, last_answer, last_failure)


def sample(
    at: float, answered: int, failed: int = 0, last_failure: float = 0.0, horizon: float | None = None
) -> LoadSample:
    way = seen_on(WAY, answered, failed, at, last_failure)
    return LoadSample(at, at, (way,), at if horizon is None else horizon)


def verdict(
    before: LoadSample, after: LoadSample, *, ended: float = 12.0, promise: Promise = NOTHING_PROMISED, kept: int = 5
) -> FaultReport:
    return judge(
        "cut", "link cut", promise, before, after, FaultTiming(10.0, ended, "no ping"), OpenConnections(5, kept)
    )


def test_only_what_failed_since_the_fault_counts() -> None:
    report = verdict(sample(10, 100, 3, 5.0), sample(20, 190, 10, 12.5))

    assert (report.attempts, report.failed, report.failures) == (97, 7, {"timeout": 7})
    assert report.ways == (WayCost(WAY, 97, {"timeout": 7}),)
    assert (report.outage, report.recovery, report.seconds) == (2.5, 0.5, 10)


@pytest.mark.parametrize(
    ("promise", "failed", "kept", "expected"),
    [
        pytest.param(Promise(), 0, 5, FaultVerdict.NONE_FAILED, id="nothing lost"),
        pytest.param(Promise(), 7, 0, FaultVerdict.RECOVERED, id="nothing promised"),
        pytest.param(Promise(new=True), 0, 0, FaultVerdict.NONE_FAILED, id="open ones may break"),
        pytest.param(Promise(new=True), 1, 5, FaultVerdict.LOST, id="a new one lost"),
        pytest.param(Promise(new=True, open=True), 0, 4, FaultVerdict.LOST, id="an open one broken"),
    ],
)
def test_a_fault_is_measured_by_what_it_must_not_cost(
    promise: Promise, failed: int, kept: int, expected: FaultVerdict
) -> None:
    after = sample(20, 190, failed, 11.0 if failed else 0.0)

    assert verdict(sample(10, 100), after, promise=promise, kept=kept).verdict is expected


def test_a_failed_lookup_is_a_loss_whether_connections_failed_or_not() -> None:
    before, after = sample(10, 100), sample(20, 190)
    for lost, expected in ((0, FaultVerdict.NONE_FAILED), (1, FaultVerdict.LOST)):
        course = FaultTiming(10.0, 12.0, lost=lost)
        assert (
            judge("dns", "killed", NOTHING_PROMISED, before, after, course, OpenConnections(5, 5)).verdict is expected
        )


def test_failures_before_the_fault_are_no_outage() -> None:
    report = verdict(sample(10, 100, 3, 9.0), sample(20, 190, 3, 9.0))

    assert (report.failed, report.outage, report.recovery) == (0, 0.0, 0.0)
    assert fault_table([report]).splitlines()[1].split()[:7] == ["cut", "link", "cut", "0", "90", "-", "-"]


def test_connections_that_still_fail_have_not_recovered() -> None:
    report = verdict(sample(10, 100), sample(20, 100, 50, 19.9), promise=Promise(new=True))

    assert (report.verdict, report.recovery) == (FaultVerdict.NOT_RECOVERED, None)
    assert "not seen" in fault_table([report])
    assert fault_table([report]).endswith("; not as it must be: cut not recovered")


def test_all_is_well_when_all_that_began_lately_is_known_to_be_answered() -> None:
    assert is_well(sample(20, 1), since=19.0)
    assert not is_well(sample(20, 1), since=19.8)
    assert not is_well(sample(20, 1, 1, last_failure=19.7), since=10.0)
    assert not is_well(sample(20, 1, horizon=18.2), since=18.0), "one that began then has not ended"


def test_all_is_not_well_as_long_as_one_way_has_not_answered_since() -> None:
    failing = seen_on(OTHER_WAY, 5, 1, last_answer=9.0, last_failure=12.0)
    slow = LoadSample(20, 20, (seen_on(WAY, 90, last_answer=19.9), failing), 20)

    assert not is_well(slow, since=11.0), "it is asked so rarely that nothing failed lately"
    assert failing_paths(slow, since=11.0) == ["caller-1 → ClusterIP [fd00:10:96::7]:80"]


def test_the_slowest_answer_is_one_of_those_since_the_fault() -> None:
    way = msgspec.structs.replace(seen_on(WAY, 3), latencies={100: 2, 900_000: 1}, last_answer=20)
    before = LoadSample(10, 10, (way,), 10)
    after = LoadSample(20, 20, (msgspec.structs.replace(way, latencies={100: 5, 3000: 1, 900_000: 1}),), 20)

    assert verdict(before, after).slowest == 0.003


def test_the_table_tells_where_connections_failed_and_what_was_not_done() -> None:
    before = LoadSample(10, 10, (seen_on(WAY, 10), seen_on(OTHER_WAY, 10)), 10)
    ways = (seen_on(WAY, 20, 2, 20, 11), seen_on(OTHER_WAY, 20, 0, 20))
    text = fault_table([verdict(before, LoadSample(20, 20, ways, 20)), NotDone("delay", "no /dev/net/tun")])

    costs, where, seen, undone, last = text.split("\n\n")
    assert costs.splitlines()[1].split() == [
        "cut",
        "link",
        "cut",
        "2",
        "22",
        "1.00",
        "s",
        "0.00",
        "s",
        "0.10",
        "ms",
        "5",
        "of",
        "5",
        "recovered",
    ]
    assert costs.splitlines()[2].split() == ["delay", "NOT", "DONE"]
    assert where.splitlines()[1:] == ["cut        outside  NodePort  2 of 12        2 timeout"]
    assert seen.splitlines()[1:] == ["cut    no ping"]
    assert undone.splitlines()[1:] == ["delay     no /dev/net/tun"]
    assert last == "1 fault, 22 connections, 2 failed; not as it must be: delay not done"


def test_a_load_is_shown_with_the_rate_since_the_last_look() -> None:
    text = load_text(sample(20, 150, 10), sample(10, 100)).splitlines()

    assert text[0] == "20.0 s  answered=150 failed=10 p50=0.10 ms p99=0.10 ms"
    assert text[2].split()[:5] == ["FROM", "TO", "ANSWERED", "FAILED", "PER"]
    assert text[3].split()[:6] == ["client", "NodePort", "192.168.0.11:30000", "150", "10", "6"]
    assert text[3].endswith("10 timeout")


def test_where_there_is_little_room_ways_of_a_kind_are_one_row() -> None:
    second = msgspec.structs.replace(OTHER_WAY, client="caller-2")
    ways = (seen_on(WAY, 5), seen_on(OTHER_WAY, 10, 1), seen_on(second, 20, 2))
    text = load_text(LoadSample(10, 10, ways, 10), None, grouped=True).splitlines()

    assert [line.split()[:5] for line in text[3:5]] == [
        ["outside", "NodePort", "IPv4", "5", "0"],
        ["pod", "ClusterIP", "IPv6", "30", "3"],
    ]
    assert text[4].endswith("3 timeout")


@pytest.mark.parametrize("rate", [0.0, 0.5, -1.0, 2001.0, math.nan, math.inf])
def test_a_rate_that_cannot_be_kept_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="--rate"):
        check_rate(rate)


@pytest.mark.parametrize("url", ["here", "https://", "ftp://192.0.2.7", "http://h:port", "https://[::1", "http://h:0"])
def test_an_api_that_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="neither 'embedded' nor"):
        Settings(api=url).check()


def test_a_cancelled_wait_ends_when_the_work_has() -> None:
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait(60)
        ended.set()

    async def cancel_twice() -> None:
        worker = Worker()
        waiting = asyncio.create_task(worker(work))
        await asyncio.to_thread(began.wait, 10)
        for _ in range(2):
            waiting.cancel()
            await asyncio.sleep(0)
        assert not waiting.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended.is_set()
        assert await worker(lambda: 7) == 7
        worker.close()

    asyncio.run(cancel_twice())


def kubeconfig(directory: Path, **cluster: object) -> Access:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.7:6443/k8s/", **cluster}}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "config"
    path.write_text(json.dumps(document))
    return Access.read(path)


def test_a_kubeconfig_for_another_place_names_the_server_and_needs_no_other_file(tmp_path: Path) -> None:
    authority = (Path(__file__).parents[2] / "contract/source/tls/ca.pem").read_bytes()
    (tmp_path / "ca.pem").write_bytes(authority)
    (tmp_path / "token").write_text("secret\n")
    moved = kubeconfig(tmp_path, **{"certificate-authority": "ca.pem"}).moved_to("127.0.0.1", 4711)

    cluster = moved["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:4711/k8s"
    assert cluster["tls-server-name"] == "192.0.2.7"
    assert base64.b64decode(cluster["certificate-authority-data"]) == authority
    assert moved["users"][0]["user"] == {"token": "secret"}


def test_a_server_without_tls_has_neither_name_nor_trust() -> None:
    cluster = anonymous("http://192.0.2.7:8080").moved_to("192.168.0.2", 6443)["clusters"][0]["cluster"]

    assert cluster == {"server": "http://192.168.0.2:6443"}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        pytest.param({}, "current-context: not set", id="empty"),
        pytest.param({"current-context": "x", "contexts": []}, "contexts: no entry is named 'x'", id="unknown"),
        pytest.param([], "expected object, got array", id="list"),
    ],
)
def test_a_kubeconfig_without_a_context_is_refused(tmp_path: Path, document: Any, why: str) -> None:
    (tmp_path / "config").write_text(json.dumps(document))
    with pytest.raises(LabError, match=why):
        Access.read(tmp_path / "config")


def test_access_at_another_place_keeps_its_password(tmp_path: Path) -> None:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "http://192.0.2.7:8080"}}],
        "users": [{"name": "u", "user": {"username": "ann", "password": "a:b"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(document))
    moved = Access.read(tmp_path / "config").moved_to("127.0.0.1", 4711)
    assert moved["users"][0]["user"] == {"username": "ann", "password": "a:b"}
