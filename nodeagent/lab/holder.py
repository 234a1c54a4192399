"""The supervisor of a lab as others see it: a process to wait for, or to end."""

import select
import signal

from nodeagent.lab.net.network_namespaces import LabError

KILLED_WITHIN = 5.0


class Holder:
    """process: a pidfd, which tells when nothing of the process is left; its lock on the lab is gone before that."""

    def __init__(self, pid: int, process: int, lab: str) -> None:
        self._pid = pid
        self._process = process
        self._lab = lab

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end, so long."""
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def end(self, *, patience: float) -> None:
        """SIGTERM, and SIGKILL after `patience` seconds. Raises LabError when even that does not help."""
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, KILLED_WITHIN)):
            try:
                signal.pidfd_send_signal(self._process, number)
            except ProcessLookupError:
                return
            if self.ends_within(seconds):
                return
        raise LabError(f"process {self._pid}, which holds lab {self._lab}, does not end")
