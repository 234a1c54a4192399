"""This project's tests against nftables on Debian's own kernels."""

from .conftest import Outcomes

AT_LEAST = 50
"""Tests that are left on the older kernel: none is lost to a name that selects nothing."""


def test_contract_tests_pass_on_stock_kernels(outcomes: Outcomes) -> None:
    assert not outcomes.failed, "\n".join(f"{name}\n{text}" for name, text in outcomes.failed.items())
    assert not outcomes.skipped
    assert len(outcomes.passed) >= AT_LEAST
