"""Informers against a server that misbehaves: what ends up in the store, and how many requests it took.

The protocol's own decisions are tabled in tests/unit/proxy/source/test_watch.py; here they meet real connections.
"""

import asyncio
from collections.abc import Callable

import pytest

from nodeagent.model.objects import LABEL_PROXY_NAME
from nodeagent.proxy.source import watch
from nodeagent.proxy.source.pace import Timing
from tests.contract.source.following import (
    RESOURCE,
    SERVICES,
    Follower,
    Recording,
    Server,
    Servers,
    end_of_initial,
    event,
    failure,
    follow,
    lines,
    listed,
    refuse_streaming,
    service,
    start_with,
)

RECORDED = ["applied", "dual", "ext", "lb", "np", "sticky", "web"]
"""The services of the recording, without the headless one."""


def test_a_recorded_streaming_list_in_single_bytes(fake_api_server: Servers, recording: Recording) -> None:
    stream = lines(recording("service-watchlist-initial-events")["events"])
    stream += lines(recording("service-watch-bookmark")["events"][:2])

    def prepare(server: Server) -> None:
        server.stream(SERVICES, (bytes([byte]) for byte in stream), end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(1, names=[*RECORDED, "w1"])

    follower = follow(fake_api_server, prepare, scenario)
    assert len(follower.server.requests) == 1


def test_a_recorded_list_in_recorded_pages_and_a_recorded_watch(fake_api_server: Servers, recording: Recording) -> None:
    def prepare(server: Server) -> None:
        refuse_streaming(server)
        server.reply(SERVICES, recording("service-list-limit-2")["body"])
        last = recording("service-list-continue")["body"]
        del last["metadata"]["continue"]
        server.reply(SERVICES, last)
        server.stream(SERVICES, [lines(recording("service-watch")["events"])], end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until(
            lambda: follower.changes.services[-3:] == ["w1", "w1"][:0] + follower.changes.services[-3:]
        )
        await follower.until(lambda: follower.changes.services.count("w1") == 2)

    follower = follow(fake_api_server, prepare, scenario)
    assert follower.names == ["applied", "dual", "ext"]
    assert follower.server.watches(SERVICES)[-1]["resourceVersion"] == "120"
    assert len(follower.server.requests) == 4


def test_a_watch_broken_at_any_byte_loses_and_repeats_nothing(fake_api_server: Servers) -> None:
    events = [
        event("ADDED", service("a", "11")),
        event("ADDED", service("b", "12")),
        event("MODIFIED", {**service("a", "13"), "spec": {"clusterIP": "10.0.0.2"}}),
        event("DELETED", service("b", "14")),
        event("ADDED", service("c", "15")),
    ]
    whole = b"".join(events)
    after = {"10": 0, "11": 1, "12": 2, "13": 3, "14": 4, "15": 5}

    async def main() -> None:
        for cut in (*range(0, len(whole), 41), len(whole)):
            async with fake_api_server() as server:
                start_with("10")(server)
                server.stream(SERVICES, [whole[:cut]], end="abort")
                arrived = whole[:cut].count(b"\n")
                server.stream(SERVICES, [b"".join(events[arrived:])], end="hang")
                follower = Follower(server, Timing())
                informer = asyncio.create_task(follower.run())
                await follower.until_watching(3, names=["a", "c"])
                informer.cancel()
                await asyncio.gather(informer, return_exceptions=True)
                assert sorted(follower.changes.services) == ["a", "a", "b", "b", "c"]
                assert after[server.watches(SERVICES)[2]["resourceVersion"]] == arrived
                assert len(server.requests) == 4

    asyncio.run(main())


@pytest.mark.parametrize("form", ["status", "event"])
def test_an_expired_watch_leads_to_a_list_and_its_difference(
    fake_api_server: Servers, recording: Recording, form: str
) -> None:
    def prepare(server: Server) -> None:
        start_with("5", "kept", "vanished")(server)
        if form == "status":
            server.reply(SERVICES, recording("watch-expired-410-status")["body"], 410)
        else:
            server.stream(SERVICES, [lines(recording("watch-expired-410-event")["events"])])
        server.reply(SERVICES, listed("154", "kept", "new"))

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(3, names=["kept", "new"])

    follower = follow(fake_api_server, prepare, scenario)
    assert sorted(follower.changes.services) == ["kept", "new", "vanished", "vanished"]
    assert follower.server.watches(SERVICES)[-1]["resourceVersion"] == "154"
    assert len(follower.server.requests) == 5


def test_a_server_that_expires_every_watch_is_met_with_ever_longer_waits(fake_api_server: Servers) -> None:
    def prepare(server: Server) -> None:
        refuse_streaming(server)
        for _ in range(6):
            server.reply(SERVICES, listed("5", "web"))
            server.reply(SERVICES, failure(410, "Expired"), 410)
        server.reply(SERVICES, listed("6", "web"))

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(8, names=["web"])

    follower = follow(fake_api_server, prepare, scenario)
    assert follower.waits == [0.125, 0.25, 0.5, 1.0, 2.0, 4.0]
    assert follower.changes.services == ["web"]


def test_a_server_that_lags_behind_is_waited_for_as_long_as_it_says(
    fake_api_server: Servers, recording: Recording
) -> None:
    def prepare(server: Server) -> None:
        start_with("120", "web")(server)
        server.reply(SERVICES, recording("service-list-future-rv-504")["body"], 504, {"Retry-After": "1"})
        server.stream(SERVICES, [lines([{"type": "ERROR", "object": recording("service-list-future-rv-504")["body"]}])])
        server.stream(SERVICES, [event("ADDED", service("late", "130"))], end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(4, names=["late", "web"])

    follower = follow(fake_api_server, prepare, scenario)
    assert all(wait >= 1.0 for wait in follower.waits)
    assert [query["resourceVersion"] for query in follower.server.watches(SERVICES)[1:]] == ["120"] * 3
    assert len(follower.server.lists(SERVICES)) == 1


@pytest.mark.parametrize("code", [429, 500, 502, 503])
def test_an_overloaded_server_is_left_alone_as_long_as_it_asks(fake_api_server: Servers, code: int) -> None:
    def prepare(server: Server) -> None:
        server.reply(SERVICES, failure(code, "TooManyRequests"), code, {"Retry-After": "7"})
        server.reply(SERVICES, b"upstream connect error", code)
        server.stream(SERVICES, [event("ADDED", service("web")), end_of_initial("5")], end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until(lambda: len(follower.server.requests) == 2)
        await follower.until_watching(3, names=["web"])

    follower = follow(fake_api_server, prepare, scenario)
    assert follower.waits == [7.125, 0.25]
    assert follower.store.problems == ()


def test_a_silent_watch_is_replaced_without_a_list(fake_api_server: Servers) -> None:
    def prepare(server: Server) -> None:
        start_with("5", "web")(server)
        server.stream(SERVICES, [event("ADDED", service("api", "6"))], end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(4, names=["api", "web"])

    # The API takes whole seconds; a grace below zero makes this test's watches last a tenth of one.
    follower = follow(fake_api_server, prepare, scenario, Timing(watch_min=1, watch_max=1, grace=-0.9, healthy=0.05))
    assert [query["resourceVersion"] for query in follower.server.watches(SERVICES)[1:]] == ["5", "6", "6"]
    assert len(follower.server.lists(SERVICES)) == 1


def test_watches_that_are_closed_at_once_are_no_busy_loop(fake_api_server: Servers) -> None:
    def prepare(server: Server) -> None:
        start_with("5", "web")(server)
        for _ in range(8):
            server.stream(SERVICES, [])

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(10, names=["web"])

    follower = follow(fake_api_server, prepare, scenario)
    assert follower.waits == [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0]
    assert len(follower.server.lists(SERVICES)) == 1


def test_a_watch_that_ends_in_good_order_is_renewed_at_once(fake_api_server: Servers) -> None:
    def prepare(server: Server) -> None:
        start_with("5", "web")(server)
        for version in ("6", "7", "8"):
            server.stream(SERVICES, [event("MODIFIED", service("web", version))])

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(5, names=["web"])

    follower = follow(fake_api_server, prepare, scenario, Timing(healthy=0.0, spacing=0.0))
    assert follower.waits == []
    assert [query["resourceVersion"] for query in follower.server.watches(SERVICES)[1:]] == ["5", "6", "7", "8"]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(lambda server: server.reply(SERVICES, failure(422, "Invalid"), 422), id="refused with a status"),
        pytest.param(
            lambda server: server.stream(SERVICES, [event("ERROR", failure(400, "BadRequest"))]),
            id="refused with an ERROR event",
        ),
        pytest.param(
            lambda server: server.stream(SERVICES, [event("ADDED", service("stale"))]), id="closed unfinished"
        ),
        pytest.param(
            lambda server: server.stream(SERVICES, [event("ADDED", service("stale"))], end="hang"), id="never finished"
        ),
    ],
)
def test_a_server_that_cannot_stream_is_listed(fake_api_server: Servers, first: Callable[[Server], None]) -> None:
    def prepare(server: Server) -> None:
        first(server)
        server.reply(SERVICES, listed("5", "web"))

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(2, names=["web"])

    follower = follow(fake_api_server, prepare, scenario, Timing(initial_silence=0.1))
    assert len(follower.server.requests) == 3
    assert follower.changes.services == ["web"]


def test_a_refusal_to_stream_is_no_failure(fake_api_server: Servers, caplog: pytest.LogCaptureFixture) -> None:
    """kube-apiserver sends an ERROR event where its etcd is too old to say how far a watch has come."""
    message = (
        "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
    )

    def prepare(server: Server) -> None:
        server.stream(SERVICES, [event("ERROR", {**failure(500, "InternalError"), "message": message})])
        server.reply(SERVICES, listed("5", "web"))

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(2, names=["web"])

    follower = follow(fake_api_server, prepare, scenario)
    assert follower.waits == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_streaming_list_that_breaks_off_leaves_no_half_state(fake_api_server: Servers) -> None:
    def prepare(server: Server) -> None:
        server.stream(SERVICES, [event("ADDED", service("stale"))], end="abort")
        server.stream(SERVICES, [event("ADDED", service("web")), end_of_initial("9")], end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(2, names=["web"])

    follower = follow(fake_api_server, prepare, scenario)
    assert follower.changes.services == ["web"]


def test_pages_that_expire_half_way_are_replaced_by_one_whole_list(fake_api_server: Servers) -> None:
    def prepare(server: Server) -> None:
        refuse_streaming(server)
        server.reply(SERVICES, listed("5", "a", **{"continue": "next"}))
        server.reply(SERVICES, failure(410, "Expired", "The provided continue parameter is too old"), 410)
        server.reply(SERVICES, listed("9", "b", "c"))

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(2, names=["b", "c"])

    follower = follow(fake_api_server, prepare, scenario)
    assert ["limit" in query for query in follower.server.lists(SERVICES)] == [True, True, False]
    assert sorted(follower.changes.services) == ["b", "c"]


def test_without_selectors_the_store_filters_and_sees_the_same_transitions(fake_api_server: Servers) -> None:
    unsupported = failure(400, "BadRequest", "field label not supported: spec.clusterIP")

    def prepare(server: Server) -> None:
        for _ in range(3):
            server.reply(SERVICES, unsupported, 400)
        body = listed("5", "web")
        body["items"].append(service("other", **{LABEL_PROXY_NAME: ""}))
        server.reply(SERVICES, body)
        taken = event("MODIFIED", service("web", "6", **{LABEL_PROXY_NAME: "x"}))
        given = event("MODIFIED", service("other", "7"))
        server.stream(SERVICES, [taken, given], end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(2, names=["other"])

    follower = follow(fake_api_server, prepare, scenario)
    assert follower.changes.services == ["web", "web", "other"]
    assert "labelSelector" not in follower.server.watches(SERVICES)[-1]
    assert len(follower.server.requests) == 5


def test_a_400_for_a_moment_does_not_cost_the_selectors(fake_api_server: Servers) -> None:
    """nginx says so for a client certificate that it has not been given; there is no Status in it."""

    def prepare(server: Server) -> None:
        server.reply(SERVICES, b"<html><title>400 The SSL certificate error</title></html>", 400)
        start_with("5", "web")(server)
        server.reply(SERVICES, b"<html><title>400 The SSL certificate error</title></html>", 400)
        server.stream(SERVICES, [event("ADDED", service("late", "6"))], end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(4, names=["late", "web"])

    follower = follow(fake_api_server, prepare, scenario)
    wanted = dict(RESOURCE.selectors).items()
    assert all(wanted <= query.items() for _, query, _ in follower.server.requests)
    assert len(follower.server.lists(SERVICES)) == 1


@pytest.mark.parametrize("form", ["pages", "a stream", "a line", "a body"])
def test_a_server_without_bounds_meets_one_and_ever_longer_waits(fake_api_server: Servers, form: str) -> None:
    """What was known stays in force, and the Problem says which bound it was."""
    junk = b"x" * (1 << 20)

    def prepare(server: Server) -> None:
        start_with("5", "web")(server)
        server.reply(SERVICES, failure(410, "Expired"), 410)
        for _ in range(4):
            match form:
                case "pages":
                    for number in range(5):
                        server.reply(SERVICES, listed("6", f"a{number}", **{"continue": f"{number}"}))
                case "a stream":
                    server.reply(SERVICES, listed("6", *(f"a{number}" for number in range(30))))
                case "a line":
                    server.reply(SERVICES, listed("6", "web"))
                    server.stream(SERVICES, [b'{"type":"', *[junk] * 20], end="hang")
                case "a body":
                    server.stream(SERVICES, [junk] * 3, end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until(lambda: len(follower.waits) >= 4)
        assert follower.names == ["web"]
        (problem,) = follower.store.problems
        assert problem.reason == "Oversized"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "PAGES_LIMIT", 3)
        patch.setattr(watch, "OBJECTS_LIMIT", 20)
        follower = follow(fake_api_server, prepare, scenario, body_limit=2 << 20)
    assert follower.waits[:4] == [0.125, 0.25, 0.5, 1.0]


def test_a_line_of_five_megabytes(fake_api_server: Servers) -> None:
    huge = service("huge")
    huge["metadata"]["annotations"] = {"note": "x" * 5_000_000}

    def prepare(server: Server) -> None:
        server.stream(SERVICES, [event("ADDED", huge), end_of_initial("5")], end="hang")

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(1, names=["huge"])

    follow(fake_api_server, prepare, scenario)


def test_a_server_that_goes_away_and_comes_back_is_followed_from_where_it_was(fake_api_server: Servers) -> None:
    async def scenario(follower: Follower) -> None:
        server = follower.server
        await follower.until_watching(2, names=["web"])
        await server.stop()
        await follower.until(lambda: len(follower.waits) >= 6)
        assert [problem.reason for problem in follower.store.problems] == ["ServerUnreachable"]
        assert follower.names == ["web"]
        server.stream(SERVICES, [event("ADDED", service("api", "6"))], end="hang")
        await server.start()
        await follower.until_watching(3, names=["api", "web"])
        await follower.until(lambda: not follower.store.problems)

    follower = follow(fake_api_server, start_with("5", "web"), scenario)
    assert follower.server.watches(SERVICES)[-1]["resourceVersion"] == "5"
    assert len(follower.server.lists(SERVICES)) == 1
    assert follower.changes.services == ["web", "api"]


def test_an_object_that_does_not_decode_is_absent_and_reported_until_it_does(fake_api_server: Servers) -> None:
    bad = {**service("bad", "6"), "spec": {"ports": [{"port": "http"}]}}

    def prepare(server: Server) -> None:
        refuse_streaming(server)
        body = listed("5", "web")
        body["items"].append(bad)
        server.reply(SERVICES, body)

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(2, names=["web"])
        assert [str(problem) for problem in follower.store.problems] == [
            "Service demo/bad: Undecodable: ignored: Expected `int`, got `str` - at `$.spec.ports[0].port`"
        ]
        follower.server.stream(
            SERVICES,
            [
                event("MODIFIED", service("bad", "7")),
                event("MODIFIED", {**bad, "metadata": service("web", "8")["metadata"]}),
            ],
            end="hang",
        )
        await follower.server.stop()
        await follower.server.start()
        await follower.until(lambda: follower.names == ["bad"])
        assert [problem.subject for problem in follower.store.problems] == ["Service demo/web"]

    follow(fake_api_server, prepare, scenario)


def test_an_answer_that_is_not_the_kubernetes_api_is_reported_and_tried_again(fake_api_server: Servers) -> None:
    def prepare(server: Server) -> None:
        refuse_streaming(server)
        server.reply(SERVICES, b"<html>login</html>")
        server.reply(SERVICES, failure(403, "Forbidden", "services is forbidden"), 403)
        server.reply(SERVICES, listed("5", "web"))

    async def scenario(follower: Follower) -> None:
        await follower.until_watching(2, names=["web"])

    follower = follow(fake_api_server, prepare, scenario)
    assert follower.waits == [0.125, 0.25]
    assert follower.store.problems == ()
