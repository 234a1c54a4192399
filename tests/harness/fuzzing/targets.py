"""Everything that is attacked with bytes."""

from tests.harness.fuzzing import netlink_replies

TARGETS = (*netlink_replies.TARGETS,)
