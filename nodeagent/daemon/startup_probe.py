"""kubelet's startup probe of an agent's pod: a socket whose name contains the number of the process namespace.

Two pods of one node share its ports during a handover, and the former agent answers at them. Only processes of the same
pod find this socket. Listening is the whole answer: nothing is read or sent.
"""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nodeagent.proxy.observe.admin.place import listen_at, sweep

logger = logging.getLogger(__name__)

NAME = "started.sock"
_NAMESPACE = Path("/proc/self/ns/pid")
_MODE = 0o600


def probed_socket(directory: Path) -> Path:
    """Returns the path where the agent of this process namespace listens."""
    name = Path(NAME)
    return directory / f"{name.stem}-{_NAMESPACE.stat().st_ino}{name.suffix}"


@contextmanager
def probes_succeed(directory: Path) -> Iterator[None]:
    """Lets probes succeed while the block runs. If that is impossible, logs why: then the pod does not become Ready."""
    try:
        path = probed_socket(directory)
        listener = listen_at(path, mode=_MODE, group=None)
        sweep(directory / NAME)
    except OSError as error:
        logger.error("cannot listen in %s, where kubelet asks whether this agent has started: %s", directory, error)  # noqa: TRY400
        yield
        return
    with closing(listener):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
