"""What kubelet asks whether the agent of a pod has started: a socket that has the number of the process namespace in its name.

Two pods of one node share its ports while one hands over to the other, and the former agent answers at them. This socket is found by
processes of the same pod alone. To listen is the answer: nothing is read or said.
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
    """Where the agent of this process namespace listens."""
    name = Path(NAME)
    return directory / f"{name.stem}-{_NAMESPACE.stat().st_ino}{name.suffix}"


@contextmanager
def probes_succeed(directory: Path) -> Iterator[None]:
    """While the block runs. Where that cannot be, a log line says why: the pod does not become Ready."""
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
