"""Durations read and print exactly as Go's time.ParseDuration and Duration.String do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.durations import Duration, format_duration, parse_duration

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
LARGEST = 2**63 - 1


# The cases of parseDurationTests in Go's src/time/time_test.go.
@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("5s", 5 * SECOND),
        ("30s", 30 * SECOND),
        ("1478s", 1478 * SECOND),
        ("-5s", -5 * SECOND),
        ("+5s", 5 * SECOND),
        ("-0", 0),
        ("+0", 0),
        ("5.0s", 5 * SECOND),
        ("5.6s", 5_600_000_000),
        ("5.s", 5 * SECOND),
        (".5s", SECOND // 2),
        ("1.0s", SECOND),
        ("1.00s", SECOND),
        ("1.004s", 1_004_000_000),
        ("1.0040s", 1_004_000_000),
        ("100.00100s", 100_001_000_000),
        ("10ns", 10),
        ("11us", 11_000),
        ("12µs", 12_000),
        ("12μs", 12_000),
        ("13ms", 13_000_000),
        ("14s", 14 * SECOND),
        ("15m", 15 * MINUTE),
        ("16h", 16 * HOUR),
        ("3h30m", 3 * HOUR + 30 * MINUTE),
        ("10.5s4m", 4 * MINUTE + 10_500_000_000),
        ("-2m3.4s", -(2 * MINUTE + 3_400_000_000)),
        ("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4_005_006),
        ("39h9m14.425s", 39 * HOUR + 9 * MINUTE + 14_425_000_000),
        ("52763797000ns", 52_763_797_000),
        ("0.3333333333333333333h", 20 * MINUTE),
        ("9007199254740993ns", 2**53 + 1),
        ("9223372036854775807ns", LARGEST),
        ("9223372036854775.807us", LARGEST),
        ("9223372036s854ms775us807ns", LARGEST),
        ("-9223372036854775808ns", -(2**63)),
        ("-9223372036854775.808us", -(2**63)),
        ("-9223372036s854ms775us808ns", -(2**63)),
        ("-2562047h47m16.854775808s", -(2**63)),
        ("0.100000000000000000000h", 6 * MINUTE),
        ("0.830103483285477580700h", 49 * MINUTE + 48 * SECOND + 372_539_827),
    ],
)
def test_go_reads(text: str, nanoseconds: int) -> None:
    assert parse_duration(text).nanoseconds == nanoseconds


# The cases of parseDurationErrorTests in the same file.
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", 'invalid duration ""'),
        ("3", 'missing unit in duration "3"'),
        ("-", 'invalid duration "-"'),
        ("s", 'invalid duration "s"'),
        (".", 'invalid duration "."'),
        ("-.", 'invalid duration "-."'),
        (".s", 'invalid duration ".s"'),
        ("+.s", 'invalid duration "+.s"'),
        ("1d", 'unknown unit "d" in duration "1d"'),
        ("--5s", 'invalid duration "--5s"'),
        ("5 s", 'unknown unit " s" in duration "5 s"'),
        ("3e3s", 'unknown unit "e" in duration "3e3s"'),
        ("٣s", 'invalid duration "٣s"'),
        ("9223372036854775810ns", 'invalid duration "9223372036854775810ns"'),
        ("9223372036854775808ns", 'invalid duration "9223372036854775808ns"'),
        ("-9223372036854775809ns", 'invalid duration "-9223372036854775809ns"'),
        ("9223372036854776us", 'invalid duration "9223372036854776us"'),
        ("3000000h", 'invalid duration "3000000h"'),
        ("9223372036854775.808us", 'invalid duration "9223372036854775.808us"'),
        ("9223372036854ms775us808ns", 'invalid duration "9223372036854ms775us808ns"'),
    ],
)
def test_go_refuses(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == reason


# The cases of durationTests in the same file.
@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0s", 0),
        ("1ns", 1),
        ("1.1µs", 1_100),
        ("2.2ms", 2_200_000),
        ("3.3s", 3_300_000_000),
        ("4m5s", 4 * MINUTE + 5 * SECOND),
        ("4m5.001s", 4 * MINUTE + 5_001_000_000),
        ("5h6m7.001s", 5 * HOUR + 6 * MINUTE + 7_001_000_000),
        ("8m0.000000001s", 8 * MINUTE + 1),
        ("2562047h47m16.854775807s", LARGEST),
        ("-2562047h47m16.854775808s", -(2**63)),
    ],
)
def test_go_prints(text: str, nanoseconds: int) -> None:
    assert format_duration(nanoseconds) == text


@given(st.integers(-(2**63), LARGEST))
def test_a_printed_duration_reads_back_the_same(nanoseconds: int) -> None:
    assert parse_duration(str(Duration(nanoseconds))) == Duration(nanoseconds)


@given(st.text(alphabet="0123456789.-+hmsnuµ eE", max_size=24))
def test_any_text_is_a_duration_of_64_bits_or_a_value_error(text: str) -> None:
    try:
        nanoseconds = parse_duration(text).nanoseconds
    except ValueError:
        nanoseconds = 0
    assert -(2**63) <= nanoseconds <= LARGEST


def test_seconds_and_order() -> None:
    assert parse_duration("250ms").seconds == 0.25
    assert parse_duration("1m") < parse_duration("61s")
