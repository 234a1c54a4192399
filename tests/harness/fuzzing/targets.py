"""Everything that is attacked with bytes."""

from tests.harness.fuzzing import (
    health_requests,
    kubeconfigs,
    manifests,
    name_packets,
    netlink_replies,
    own_files,
    request_bodies,
    watches,
)

TARGETS = (
    *kubeconfigs.TARGETS,
    *manifests.TARGETS,
    *watches.TARGETS,
    *netlink_replies.TARGETS,
    *health_requests.TARGETS,
    *name_packets.TARGETS,
    *request_bodies.TARGETS,
    *own_files.TARGETS,
)
