"""What releases of Kubernetes serve of the API that the agent reads, where they differ.

From kubernetes/kubernetes: test/compatibility_lifecycle/reference/versioned_feature_list.yaml (the feature gates WatchList,
PreferSameTrafficDistribution and MultiCIDRServiceAllocator), CHANGELOG-1.31.md (#125021: ServiceCIDRs are beta, off by default, and
of networking.k8s.io/v1beta1) and CHANGELOG-1.33.md (stable). A kube-apiserver that emulates a release is asked in
`tests/contract/source/test_releases.py`.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Release:
    """name: minor version. streams_lists: a watch may begin with the present objects. has_node_hints: `forNodes` of a slice is kept,
    and `PreferSameNode` accepted. has_service_cidrs: networking.k8s.io/v1 has them."""

    name: str
    streams_lists: bool
    has_node_hints: bool
    has_service_cidrs: bool


RELEASES: Final = (
    Release("1.32", streams_lists=True, has_node_hints=False, has_service_cidrs=False),
    Release("1.33", streams_lists=False, has_node_hints=False, has_service_cidrs=True),
    Release("1.34", streams_lists=True, has_node_hints=True, has_service_cidrs=True),
    Release("1.35", streams_lists=True, has_node_hints=True, has_service_cidrs=True),
    Release("1.36", streams_lists=True, has_node_hints=True, has_service_cidrs=True),
)
EMULATED: Final = tuple(release for release in RELEASES if release.name != "1.32")
"""What kube-apiserver 1.36 emulates: three releases before its own (`--emulated-version`)."""
