"""The supervisor of a lab as another process sees it: to wait for its end, or to end it."""

import select
import signal

from nodeagent.lab.net.network_namespaces import LabError

KILLED_WITHIN = 5.0


class Holder:
    """The process that runs a lab.
    process: a pidfd, readable when the process has ended completely; its lock on the lab is released before that."""

    def __init__(self, pid: int, process: int, lab: str) -> None:
        self._pid = pid
        self._process = process
        self._lab = lab

    def ends_within(self, seconds: float) -> bool:
        """Waits for the end of the process. Returns whether it ended in time."""
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def end(self, *, patience: float) -> None:
        """Sends SIGTERM, and SIGKILL after `patience` seconds. Raises LabError if it does not end even then."""
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, KILLED_WITHIN)):
            try:
                signal.pidfd_send_signal(self._process, number)
            except ProcessLookupError:
                return
            if self.ends_within(seconds):
                return
        raise LabError(f"process {self._pid}, which holds lab {self._lab}, does not end")
