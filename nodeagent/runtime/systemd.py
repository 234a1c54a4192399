"""The notification protocol of systemd (sd_notify(3)): datagrams to the socket that NOTIFY_SOCKET names."""

import os
import socket
import time
from collections.abc import Callable, Mapping

from nodeagent.model.text import printable

FEEDINGS_PER_TIMEOUT = 4
"""sd_watchdog_enabled(3) advises at least two; more tolerate a late beat."""
PATIENCE_SECONDS = 0.05
"""How long a busy systemd with a full queue may delay us."""


class SystemdNotifier:
    """Reports the service's state to systemd; does nothing if systemd did not start us.

    environment: has the socket of systemd. pid: our own; a watchdog may be meant for another process of the
    service (WATCHDOG_PID). monotonic: seconds of CLOCK_MONOTONIC, which systemd compares with.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        pid: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        usec = environment.get("WATCHDOG_USEC", "")
        ours = environment.get("WATCHDOG_PID", "") in ("", str(os.getpid() if pid is None else pid))
        self.watchdog_seconds = int(usec) / 1e6 if ours and usec.isdigit() and int(usec) else None
        self._monotonic = monotonic
        self._fed = float("-inf")
        self._status = ""
        self._remark = ""

    def ready(self, status: str) -> None:
        """Reports that the service is ready; also at the end of a reload."""
        self._status = status
        self._send("READY=1", self._status_line())

    def status(self, text: str) -> None:
        """Sets the line for `systemctl status`; sends it only if it changed."""
        if text != self._status:
            self._status = text
            self._send(self._status_line())

    def remark(self, text: str) -> None:
        """Sets the end of the status line, whatever the status is; empty for nothing."""
        if text != self._remark:
            self._remark = text
            self._send(self._status_line())

    def beat(self) -> None:
        """Feeds the watchdog, if there is one and it is time. Call it from the work itself, never from a timer."""
        if self.watchdog_seconds is None:
            return
        now = self._monotonic()
        if now - self._fed >= self.watchdog_seconds / FEEDINGS_PER_TIMEOUT:
            self._fed = now
            self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """Reports that the configuration is being read again; `ready` or `still_ready` ends that."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(self._monotonic() * 1e6)}")

    def still_ready(self) -> None:
        """Reports that a reload ended without a change."""
        self._send("READY=1", self._status_line())

    def stopping(self) -> None:
        """Reports that the service ends on purpose."""
        self._send("STOPPING=1", "STATUS=stopping")

    def _status_line(self) -> str:
        return f"STATUS={printable('; '.join(part for part in (self._status, self._remark) if part))}"

    def _send(self, *lines: str) -> None:
        """Sends a notification. A lost one is noticed by systemd (READY and WATCHDOG have timeouts); it must not stop traffic."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.settimeout(PATIENCE_SECONDS)
            try:
                notify.sendto("\n".join(lines).encode(), address)
            except OSError:
                return
