"""No test of this directory may pass because an exception was caught and became SERVFAIL."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_was_swallowed(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.get_records("call") if record.exc_info]
