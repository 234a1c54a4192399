"""How a number of answers is summed up, and when a spread counts as fair."""

import random
from collections import Counter

import pytest

from nodeagent.lab.net.actor_messages import Answer, Failure
from nodeagent.lab.net.survey import Survey, chi_square, evenness

SERVERS = ("a", "b", "c")


def test_a_survey_counts_answers_and_failures_apart() -> None:
    survey = Survey(
        (
            Answer("a", peer="10.0.0.1", seconds=0.1),
            Answer("b", peer="10.0.0.2", seconds=0.3),
            Answer("a", peer="10.0.0.1"),
            Answer(failure=Failure.TIMEOUT, seconds=3.0),
        )
    )

    assert survey.names == {"a": 2, "b": 1}
    assert survey.failures == {Failure.TIMEOUT: 1}
    assert survey.peers == {"10.0.0.1", "10.0.0.2"}
    assert survey.slowest == 3.0


def test_the_only_answer_is_the_only_one() -> None:
    assert Survey((Answer("a"),)).only.name == "a"
    with pytest.raises(ValueError, match="too many"):
        _ = Survey((Answer("a"), Answer("b"))).only
    assert Survey(()).slowest == 0


def test_chi_square_is_pearsons() -> None:
    assert chi_square([10, 20, 30]) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("counts", "probability"),
    [
        pytest.param((100, 100, 100), 1.0, id="even"),
        pytest.param((90, 100, 110), 0.367879, id="statistic 2, 2 degrees: exp(-1)"),
        pytest.param((60, 100, 140), 1.12535e-7, id="statistic 32, 2 degrees: exp(-16)"),
        pytest.param((0, 0, 9000), 0.0, id="all to one"),
    ],
)
def test_evenness_of_three(counts: tuple[int, ...], probability: float) -> None:
    assert evenness(Counter(dict(zip(SERVERS, counts, strict=True))), SERVERS) == pytest.approx(probability, rel=1e-4)


@pytest.mark.parametrize(
    ("names", "servers", "probability"),
    [
        pytest.param({"a": 55, "b": 45}, "ab", 0.317311, id="one standard deviation of two"),
        pytest.param({"a": 18, "b": 8, "c": 12, "d": 12}, "abcd", 0.252954, id="four servers"),
        pytest.param({"a": 5}, "a", 1.0, id="one server"),
        pytest.param({"a": 30}, "abc", 9.3576e-14, id="a server that never answered counts"),
        pytest.param({"a": 10, "x": 1}, "ab", 0.0, id="an answer from somebody else"),
        pytest.param({}, "ab", 0.0, id="no answers"),
    ],
)
def test_evenness(names: dict[str, int], servers: str, probability: float) -> None:
    assert evenness(names, servers) == pytest.approx(probability, rel=1e-3)


def test_a_fair_choice_is_below_a_tenth_in_a_tenth_of_all_runs() -> None:
    dice = random.Random(20)
    runs = [evenness(Counter(dice.choices(SERVERS, k=300)), SERVERS) for _ in range(1000)]

    assert sum(probability < 0.1 for probability in runs) == pytest.approx(100, abs=30)
