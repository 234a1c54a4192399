"""A request that is refused with 400: when it is the selectors that go, and when they come back."""

import pytest

from nodeagent.proxy.source.client.api_errors import RejectedError, status_error
from nodeagent.proxy.source.watch import UNEXPLAINED_LIMIT, Retry
from tests.unit.proxy.source.watching import SELECTORS, asked, machine, watching


@pytest.mark.parametrize(
    "message",
    [
        "field label not supported: spec.clusterIP",
        '"spec.clusterIP" is not a known field selector: only "metadata.name", "metadata.namespace"',
        "unable to parse requirement: found '=', expected: identifier",
        "invalid selector: 'a>b'; can't understand 'a>b'",
    ],
)
def test_a_400_in_the_words_of_kube_apiserver_is_about_the_selector(message: str) -> None:
    protocol = machine()
    protocol.next_request(300)
    assert protocol.refused(RejectedError(400, message)) is Retry.AT_ONCE
    assert "fieldSelector" not in asked(protocol)


def test_a_400_in_other_words_costs_the_selectors_when_it_is_repeated_only() -> None:
    protocol = machine()
    seen = []
    for _ in range(2 * UNEXPLAINED_LIMIT + 1):
        seen.append(sorted(set(asked(protocol)) & {"labelSelector", "fieldSelector"}))
        protocol.refused(RejectedError(400, "no"))
    both = ["fieldSelector", "labelSelector"]
    assert seen == [both, both, ["labelSelector"], ["labelSelector"], []]


FRONT = status_error(400, b"<html>400 No required SSL certificate was sent</html>")


@pytest.mark.parametrize("streaming", [False, True])
def test_a_400_of_something_before_the_server_says_nothing_about_selectors_and_streaming(streaming: bool) -> None:
    protocol = machine(streaming=streaming)
    before = asked(protocol)
    for _ in range(3):
        assert protocol.refused(FRONT) is Retry.BACK_OFF
        assert asked(protocol) == before
    assert protocol.given_up == ()


def test_a_400_of_something_before_the_server_leaves_the_watch_where_it_is() -> None:
    protocol = watching()
    protocol.next_request(300)
    assert protocol.refused(FRONT) is Retry.BACK_OFF
    assert asked(protocol)["resourceVersion"] == "5"


def test_selectors_that_were_given_up_can_come_back() -> None:
    protocol = machine()
    protocol.next_request(300)
    protocol.refused(RejectedError(400, "field label not supported: b"))
    assert dict(protocol.given_up) == dict(SELECTORS)
    assert "fieldSelector" not in asked(protocol)
    protocol.use_selectors_again()
    assert not protocol.given_up
    request = protocol.next_request(300)
    assert request.starts_list
    assert dict(SELECTORS).items() <= dict(request.parameters).items()
