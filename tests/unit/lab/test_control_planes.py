"""Several control planes: who they are, whom a fault is on, what Service changes say, which API server is asked."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.exit_codes import CANNOT_PROGRAM, Failure
from nodeagent.cli.lab import find_etcd
from nodeagent.lab.api import Api, ApiRefused, anonymous
from nodeagent.lab.control_plane import clients_of
from nodeagent.lab.etcd import check_room
from nodeagent.lab.fault_kinds import CONTROL_KINDS, KINDS, FaultTarget
from nodeagent.lab.fault_verdict import (
    Change,
    ChangeSummary,
    FaultTiming,
    OpenConnections,
    Promise,
    changes_since,
    judge,
    takes_new_changes,
)
from nodeagent.lab.lab_plan import Settings, api_urls, control_hosts, member_name, plan
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.report_tables import fault_table
from nodeagent.lab.supervisor_messages import FaultReport, FaultVerdict, LoadSample, ServicePath, WaySample

WAY = ServicePath("caller-1", "pod", "ClusterIP", "10.96.0.1", 80)


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_each_control_plane_is_a_host_with_addresses_of_its_own(count: int, ipv6: bool) -> None:
    settings = Settings(nodes=50, pods=0, ipv6=ipv6, control_planes=count)
    settings.check()
    topology = plan(settings)
    topology.check()
    addresses = [address for member in topology.members for address in member.addresses]

    assert len(set(addresses)) == len(addresses)
    assert len(control_hosts(settings)) == len(api_urls(settings)) == count
    assert set(control_hosts(settings)) <= set(topology.outside)


def test_a_single_one_is_called_as_ever_and_several_are_counted() -> None:
    assert [host.name for host in control_hosts(Settings())] == ["control"]
    hosts = [host.name for host in control_hosts(Settings(control_planes=3))]
    assert hosts == ["control-1", "control-2", "control-3"]
    assert [member_name(host) for host in hosts] == ["etcd-1", "etcd-2", "etcd-3"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(control_planes=2), "--control-planes 2: 1, 3 or 5"),
        (Settings(control_planes=0), "--control-planes 0: 1, 3 or 5"),
        (Settings(control_planes=3, api="http://192.0.2.1"), "--control-planes is for API servers of the lab"),
    ],
)
def test_how_many_there_cannot_be(settings: Settings, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        settings.check()


def test_a_missing_etcd_is_a_missing_program(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    with pytest.raises(Failure, match=f"--etcd {program}: there is no such program") as refused:
        find_etcd(str(program))
    assert refused.value.exit_code == CANNOT_PROGRAM
    program.touch(mode=0o755)
    assert find_etcd(str(program)) == str(program)


def test_a_directory_without_room_for_etcd_is_named(tmp_path: Path) -> None:
    check_room(tmp_path, 0)
    with pytest.raises(LabError, match=f"{tmp_path}: .* set NODEAGENT_LAB_DIR"):
        check_room(tmp_path, 1 << 40)


def test_every_fault_of_a_control_plane_looks_at_changes_and_costs_no_connection() -> None:
    victims = {f"{who}-{what}" for who in ("leader", "follower", "server") for what in ("kill", "freeze", "cut")}
    assert set(CONTROL_KINDS) == victims | {"clock", "space"}
    assert all(kind.promise.new and kind.promise.open and kind.promise.changes for kind in CONTROL_KINDS.values())
    single = {FaultTarget.NODE, FaultTarget.CLUSTER}
    assert all((kind.target not in single) is (name in CONTROL_KINDS) for name, kind in KINDS.items())


def test_who_is_connected_is_read_from_the_table_of_the_kernel() -> None:
    table = """\
      sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
       0: 0200A8C0:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
       1: 0200A8C0:192B 0B00A8C0:A1B2 01 00000000:00000000 00:00000000 00000000     0        0 2
       2: 0200A8C0:192B 0C00A8C0:A1B3 06 00000000:00000000 00:00000000 00000000     0        0 3
       3: 0200A8C0:C350 0D00A8C0:192B 01 00000000:00000000 00:00000000 00000000     0        0 4
    """
    assert clients_of(6443, table.rstrip(" ")) == {"192.168.0.11"}, "one that is closing, and one of ours, do not count"


COURSE = FaultTiming(10.0, 20.0, "dead")


@pytest.mark.parametrize(
    ("changes", "promise", "expected"),
    [
        pytest.param(
            [Change(1.0, 2.0), Change(21.0, 21.5)], Promise(), ChangeSummary(1, 0.5, True), id="before it, no matter"
        ),
        pytest.param(
            [Change(9.0, 12.0), Change(21.0, 22.0)], Promise(), ChangeSummary(2, 2.0, True), id="under way: from then"
        ),
        pytest.param([Change(11.0, 16.0)], Promise(), ChangeSummary(1, 5.0, False), id="none after it"),
        pytest.param([Change(11.0)], Promise(), ChangeSummary(0, 39.0, False), id="never in force"),
        pytest.param(
            [Change(11.0, 23.0), Change(24.0, 25.0)],
            Promise(stands_still=True),
            ChangeSummary(2, 3.0, True),
            id="counted from its end where all stands still",
        ),
        pytest.param(
            [Change(11.0, 12.0)], Promise(stands_still=True), ChangeSummary(1, 0.0, False), id="sooner than expected"
        ),
        pytest.param([], Promise(), ChangeSummary(0, 0.0, False), id="none at all"),
    ],
)
def test_changes_are_counted_from_the_fault(changes: list[Change], promise: Promise, expected: ChangeSummary) -> None:
    assert changes_since(changes, COURSE, promise, 50.0) == expected


def test_changes_go_on_when_one_begun_later_is_in_force() -> None:
    assert takes_new_changes([Change(2.0, 3.0)], 1.0)
    assert not takes_new_changes([Change(2.0)], 1.0)
    assert not takes_new_changes([Change(0.5, 3.0)], 1.0)


def report(changed: ChangeSummary | None, failures: int = 0, kept: int = 5) -> FaultReport:
    before = LoadSample(9.0, 1.0, (WaySample(WAY, {"echo": 5}, {}, {}, 0.0, 8.5),), 8.9)
    failed = {"timeout": failures} if failures else {}
    after_way = WaySample(WAY, {"echo": 50}, failed, {}, 0.0, 29.0, 12.0 if failures else 0.0)
    after = LoadSample(30.0, 22.0, (after_way,), 29.5)
    promise = Promise(new=True, open=True, changes=15.0)
    return judge("leader-kill", "killed", promise, before, after, COURSE, OpenConnections(5, kept), changed)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (report(ChangeSummary(4, 2.0, True)), FaultVerdict.NONE_FAILED),
        (report(None), FaultVerdict.NONE_FAILED),
        (report(ChangeSummary(4, 15.1, True)), FaultVerdict.LATE),
        (report(ChangeSummary(1, 3.0, False)), FaultVerdict.NOT_RECOVERED),
        (report(ChangeSummary(4, 2.0, True), failures=1), FaultVerdict.LOST),
        (report(ChangeSummary(4, 15.1, True), kept=4), FaultVerdict.LOST),
    ],
)
def test_the_verdict_weighs_connections_first_and_then_changes(found: FaultReport, verdict: FaultVerdict) -> None:
    assert found.verdict is verdict
    assert found.verdict.good is (verdict is FaultVerdict.NONE_FAILED)


def test_the_table_tells_how_long_changes_took() -> None:
    text = fault_table([report(ChangeSummary(4, 15.1, True)), report(None)])
    changes = text.partition("CHANGES AT")[2].splitlines()
    assert changes[1].split() == ["leader-kill", "4", "15.1", "s"]
    assert text.endswith("not as it must be: leader-kill changes late")
    assert "CHANGES AT" not in fault_table([report(None)])


class Closing:
    """The end of a server's connections, without a word, after the client has its answer."""

    def __init__(self) -> None:
        self._wanted, self._done = threading.Semaphore(0), threading.Semaphore(0)

    def close(self) -> None:
        """Return when the connection is closed."""
        self._wanted.release()
        assert self._done.acquire(timeout=60)

    def wait(self) -> None:
        assert self._wanted.acquire(timeout=60)

    def closed(self) -> None:
        self._done.release()


@contextmanager
def answering(status: int, closing: Closing | None = None) -> Iterator[tuple[str, list[str]]]:
    """A server's URL, and what it has been asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            asked.append(self.path)
            body = b'{"message": "answered by %d"}' % status
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if closing is not None:
                closing.wait()
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    class Server(HTTPServer):
        def shutdown_request(self, request: Any) -> None:
            super().shutdown_request(request)
            if closing is not None:
                closing.closed()

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def nobody() -> str:
    """The URL of a place where nobody listens: bound, so that nobody else will."""
    return "http://127.0.0.1:1"


@pytest.mark.parametrize("away", [503, 504, 502])
def test_an_api_server_that_is_away_is_passed_by_and_the_next_one_kept_to(away: int) -> None:
    with ExitStack() as stack:
        (bad, asked_bad), (good, asked_good) = (stack.enter_context(answering(status)) for status in (away, 200))
        api = Api(anonymous(nobody(), bad, good))
        assert api.call("GET", "/one") == api.call("GET", "/two") == {"message": "answered by 200"}
        api.close()

    assert (asked_bad, asked_good) == (["/one"], ["/one", "/two"])


@pytest.mark.parametrize("away", [503, 504, 502])
def test_a_write_that_a_server_does_not_take_is_made_at_one_that_is_ready(away: int) -> None:
    with ExitStack() as stack:
        (bad, _), (good, asked_good) = (stack.enter_context(answering(status)) for status in (away, 200))
        api = stack.enter_context(Api(anonymous(bad, good)))
        assert api.call("POST", "/one", {}) == {"message": "answered by 200"}

    assert [path for path in asked_good if path != "/readyz"] == ["/one"]


def test_a_connection_that_ended_after_an_answer_costs_no_write() -> None:
    closing = Closing()
    with answering(200, closing) as (url, asked), Api(anonymous(url)) as api:
        for path in ("/one", "/two", "/three"):
            api.call("POST", path, {})
            closing.close()

    assert asked == ["/one", "/two", "/three"]


def test_the_first_server_gives_the_answer_that_all_would_give() -> None:
    with ExitStack() as stack:
        (one, asked_one), (other, asked_other) = (stack.enter_context(answering(404)) for _ in range(2))
        api = Api(anonymous(one, other))
        with pytest.raises(ApiRefused) as refused:
            api.call("GET", "/none")
        api.close()

    assert (refused.value.status, asked_one, asked_other) == (404, ["/none"], [])


def test_an_outage_of_all_servers_is_reported_after_each_was_asked_twice() -> None:
    with ExitStack() as stack:
        (one, asked_one), (other, asked_other) = (stack.enter_context(answering(503)) for _ in range(2))
        api = Api(anonymous(one, other))
        with pytest.raises(ApiRefused, match="answered by 503"):
            api.call("GET", "/none")
        api.close()
    assert (asked_one, asked_other) == (["/none"] * 2, ["/none"] * 2)
    with Api(anonymous(nobody(), nobody())) as api, pytest.raises(LabError, match=r"127\.0\.0\.1:1: "):
        api.call("GET", "/")
