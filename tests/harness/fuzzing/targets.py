"""Everything that is attacked with bytes."""

from tests.harness.fuzzing import health_requests, kubeconfigs, manifests, netlink_replies, watches

TARGETS = (
    *kubeconfigs.TARGETS,
    *manifests.TARGETS,
    *watches.TARGETS,
    *netlink_replies.TARGETS,
    *health_requests.TARGETS,
)
