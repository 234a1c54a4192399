"""The notification protocol of systemd (sd_notify(3)): datagrams to the socket that NOTIFY_SOCKET names."""

import socket
from collections.abc import Mapping


class SystemdNotifier:
    """Tells systemd how we are; does nothing when it did not start us."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        usec = environment.get("WATCHDOG_USEC", "")
        self.watchdog_seconds = int(usec) / 1e6 if usec.isdigit() else None

    def ready(self, status: str) -> None:
        """The service does its job now."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The service ends on purpose."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        """A lost notification is systemd's to notice (READY and WATCHDOG have timeouts); it must not stop traffic."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            try:
                notify.sendto(text.encode(), address)
            except OSError:
                return
