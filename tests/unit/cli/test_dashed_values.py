"""A negative value of an option whose value may be left out is named, not taken for an option of its own."""

import pytest
from click.testing import CliRunner

from nodeagent.cli.main import main


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("--events=-1", "--events must be true or false, not '-1'"),
        ("-v=-1", "-v must be a number from 0 up, not '-1'"),
        ("--conntrack-max-per-core=-1", "must be greater than or equal to 0, not -1"),
    ],
)
def test_a_negative_value_is_named(argument: str, says: str) -> None:
    outcome = CliRunner().invoke(main, ["config", "check", argument])
    assert outcome.exit_code == 2
    assert says in outcome.output
    assert "No such option" not in outcome.output
