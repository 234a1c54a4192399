"""What systemd hears: sd_notify(3) over a socket of the test's own."""

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.runtime.systemd import PATIENCE_SECONDS, SystemdNotifier
from tests.harness.stopwatch import once_within


@dataclass
class Systemd:
    """The listening side, a clock, and the environment a service would be started with."""

    listener: socket.socket
    environment: dict[str, str]
    now: float = 100.0

    def notifier(self, **environment: str) -> SystemdNotifier:
        return SystemdNotifier(self.environment | environment, pid=42, monotonic=lambda: self.now)

    def received(self) -> list[str]:
        """All datagrams since the last look."""
        texts = []
        while True:
            try:
                texts.append(self.listener.recv(4096).decode())
            except BlockingIOError:
                return texts


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        listener.setblocking(False)
        yield Systemd(listener, {"NOTIFY_SOCKET": name})


def test_a_life(systemd: Systemd) -> None:
    notifier = systemd.notifier()
    notifier.status("waiting")
    notifier.ready("3 services")
    notifier.status("4 services")
    notifier.stopping()
    assert systemd.received() == [
        "STATUS=waiting",
        "READY=1\nSTATUS=3 services",
        "STATUS=4 services",
        "STOPPING=1\nSTATUS=stopping",
    ]


def test_the_same_status_is_sent_once(systemd: Systemd) -> None:
    notifier = systemd.notifier()
    notifier.ready("3 services")
    notifier.status("3 services")
    assert len(systemd.received()) == 1


def test_a_reload_tells_when_it_began_and_that_it_ended(systemd: Systemd) -> None:
    notifier = systemd.notifier()
    notifier.ready("3 services")
    notifier.reloading()
    notifier.ready("4 services")
    assert systemd.received()[1:] == ["RELOADING=1\nMONOTONIC_USEC=100000000", "READY=1\nSTATUS=4 services"]


def test_a_remark_stays_at_the_end_of_the_status_until_it_is_taken_back(systemd: Systemd) -> None:
    notifier = systemd.notifier()
    notifier.ready("3 services")
    notifier.reloading()
    notifier.remark("reload failed")
    notifier.still_ready()
    notifier.status("4 services")
    notifier.remark("")
    assert systemd.received()[2:] == [
        "STATUS=3 services; reload failed",
        "READY=1\nSTATUS=3 services; reload failed",
        "STATUS=4 services; reload failed",
        "STATUS=4 services",
    ]


def test_beats_feed_the_watchdog_four_times_in_its_time(systemd: Systemd) -> None:
    notifier = systemd.notifier(WATCHDOG_USEC="8000000", WATCHDOG_PID="42")
    for tenth in range(80):
        systemd.now = 100.0 + tenth / 10
        notifier.beat()
    assert systemd.received() == ["WATCHDOG=1"] * 4


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="no watchdog"),
        pytest.param({"WATCHDOG_USEC": "0"}, id="switched off"),
        pytest.param({"WATCHDOG_USEC": "soon"}, id="not a number"),
        pytest.param({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "7"}, id="of another process"),
    ],
)
def test_without_a_watchdog_of_ours_beats_say_nothing(systemd: Systemd, environment: dict[str, str]) -> None:
    notifier = systemd.notifier(**environment)
    notifier.beat()
    assert notifier.watchdog_seconds is None
    assert systemd.received() == []


def test_without_systemd_nothing_is_sent() -> None:
    notifier = SystemdNotifier({"WATCHDOG_USEC": "1000"})
    notifier.ready("3 services")
    notifier.beat()
    notifier.stopping()


def test_a_systemd_that_is_gone_is_no_failure(systemd: Systemd, tmp_path: Path) -> None:
    notifier = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    notifier.ready("3 services")


def test_a_systemd_that_does_not_read_holds_nobody_up_for_long(systemd: Systemd) -> None:
    """Its queue is full after some datagrams; what comes then is lost, after a short patience."""
    notifier = systemd.notifier()
    fits = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 1
    for number in range(fits):
        notifier.status(f"{number} services")

    def lose() -> float:
        started = time.monotonic()
        notifier.status("lost")
        return time.monotonic() - started

    once_within(10 * PATIENCE_SECONDS, lose, "seconds for what nobody reads")
    assert len(systemd.received()) == fits
