"""The clock of this machine against the dates of a server's answers."""

from nodeagent.proxy.source.client.server_clock import ServerClock

DATE, EPOCH = "Thu, 01 Jan 2026 00:00:00 GMT", 1767225600.0


class Clocks:
    def __init__(self) -> None:
        self.wall, self.steady = EPOCH, 7.0
        self.compared = ServerClock(lambda: self.wall, lambda: self.steady)

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def test_without_a_date_nothing_is_known() -> None:
    clocks = Clocks()
    for date in (None, "", "yesterday", "Thu, 99 Jan 2026 00:00:00 GMT"):
        clocks.compared.answered(date)
        assert clocks.compared.ahead_seconds is None


def test_a_clock_that_is_ahead_and_one_that_is_set_later() -> None:
    clocks = Clocks()
    clocks.wall += 90
    clocks.compared.answered(DATE)
    clocks.wait(600)
    assert clocks.compared.ahead_seconds == 90
    clocks.wall -= 190
    assert clocks.compared.ahead_seconds == -100
    clocks.compared.answered("")
    assert clocks.compared.ahead_seconds == -100, "a bad date changes nothing"
