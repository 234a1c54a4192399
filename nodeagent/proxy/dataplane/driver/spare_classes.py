"""Decides which pick classes have a chain before a Service needs one (pure).

For a new chain the kernel walks the whole map that its rules read (nf_tables_bind_set): the first Service with some number of endpoints
would wait for that. A chain that is made together with its table costs nothing, because the map is empty.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from nodeagent.proxy.dataplane.image.image import ReadableImage, classes_in
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import MAX_BACKENDS, PickClass

SPARE_FROM: Final = 5_000
"""A map with fewer endpoints has no spare chains: the kernel walks it in 2 ms."""
SHARE: Final = 4
"""A rolling update of a Deployment adds and removes a quarter of its pods (the defaults of maxSurge and maxUnavailable)."""
MOST: Final = 64
"""The number of spare classes. Those that need the smallest change of a Service are preferred."""


def classes_with_chains(image: ReadableImage) -> Collection[PickClass]:
    """Returns the classes that the frontends of an image lead to, then the spare ones."""
    used = classes_in(image)
    large = {
        node_port: len(image.get(schema.NODEPORT_BACKENDS if node_port else schema.BACKENDS, ())) >= SPARE_FROM
        for node_port in (False, True)
    }
    return dict.fromkeys([*used, *spare_classes(one for one in used if large[one.node_port])])


def spare_classes(used: Iterable[PickClass]) -> list[PickClass]:
    """Returns the classes that Services of the used ones may need while a rolling update adds or removes endpoints, the nearest first."""
    used = frozenset(used)
    distances: dict[PickClass, int] = {}
    for one in used:
        for distance in range(1, min(-(-one.count // SHARE), MOST) + 1):
            for count in (one.count - distance, one.count + distance):
                if 1 <= count <= MAX_BACKENDS and (near := replace(one, count=count)) not in used:
                    distances[near] = min(distance, distances.get(near, distance))
    return sorted(distances, key=lambda one: (distances[one], one))[:MOST]
