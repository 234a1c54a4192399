"""``python -m nodeagent.dns.server CONTROL USER SOCKET...``: what the agent starts; the arguments are open files."""

import sys

from nodeagent.dns.feed.messages import Settings
from nodeagent.dns.server.front import NoUpstream, Upstream
from nodeagent.dns.server.process import run_process


def make_upstream(settings: Settings) -> Upstream:  # noqa: ARG001
    """Who is asked for names that are not ours."""
    return NoUpstream()


if __name__ == "__main__":
    run_process(int(sys.argv[1]), tuple(map(int, sys.argv[3:])), int(sys.argv[2]), make_upstream)
