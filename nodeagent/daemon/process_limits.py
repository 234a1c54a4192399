"""What the agent's process asks of the kernel for itself; failures are only logged."""

import logging
import resource
from pathlib import Path

logger = logging.getLogger(__name__)


def claim_resources(oom_score_adj: int) -> None:
    """Raises the limit of open files to the hard limit, and sets the priority for the OOM killer."""
    _set_oom_score(oom_score_adj)
    _raise_file_limit()


def _raise_file_limit() -> None:
    """A thousand services with health check ports need two thousand sockets; the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.debug("open files stay limited: %s", error)


def _set_oom_score(score: int) -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(str(score))
    except OSError as error:
        logger.debug("oom_score_adj=%d: %s", score, error.strerror)
