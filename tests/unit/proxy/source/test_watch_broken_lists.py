"""Lists that come to no end: what is asked for then, and whether at once."""

import pytest

from nodeagent.proxy.source.client.api_errors import (
    ExpiredError,
    KubeError,
    NotYetReachedError,
    RejectedError,
    ServerUnreachableError,
)
from nodeagent.proxy.source.watch import Retry
from tests.unit.proxy.source.watching import SELECTORS, asked, machine, page


@pytest.mark.parametrize(
    "refusal", [pytest.param(NotYetReachedError(504, ""), id="504"), pytest.param(RejectedError(400, ""), id="400")]
)
def test_a_server_that_refuses_every_list_in_the_same_way_is_not_asked_without_a_pause(refusal: KubeError) -> None:
    """Of its first answers some may be asked around at once, selectors and pages; no more than there are of these."""
    protocol = machine()
    waits = []
    for _ in range(40):
        protocol.next_request(300)
        if isinstance(refusal, RejectedError):
            list(protocol.receive_page(page("5", "a", continue_token="next")))
            protocol.next_request(300)
        waits.append(protocol.refused(refusal))
    assert waits.count(Retry.AT_ONCE) <= 1 + len(SELECTORS)


def test_a_list_that_breaks_off_again_and_again_is_asked_for_in_ever_smaller_pages() -> None:
    """Over a slow link the whole list, which a cache gives in one piece, may never come to its end."""
    protocol = machine()
    assert asked(protocol)["resourceVersion"] == "0"
    limits = []
    for _ in range(12):
        assert protocol.refused(ServerUnreachableError("", begun=True)) is Retry.BACK_OFF
        now = asked(protocol)
        limits.append(now["limit"] + (" from a cache" if now.get("resourceVersion") == "0" else ""))
    assert limits[:6] == ["500 from a cache", "500", "500", "125", "125", "31"]
    assert limits[-1] == "20"


def test_a_list_that_nobody_answers_stays_as_it_was_asked_for() -> None:
    protocol = machine()
    first = asked(protocol)
    for _ in range(12):
        protocol.refused(ServerUnreachableError("connection refused"))
        assert asked(protocol) == first


def test_a_page_that_breaks_off_is_asked_for_again_and_shorter() -> None:
    protocol = machine()
    protocol.next_request(300)
    protocol.refused(ExpiredError(410, ""))
    protocol.next_request(300)
    list(protocol.receive_page(page("5", "a", continue_token="next")))
    for _ in range(2):
        protocol.refused(ServerUnreachableError("", begun=True))
    assert (asked(protocol)["continue"], asked(protocol)["limit"]) == ("next", "125")
