"""Law: a service that is plain gets the elements that rendering gives it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from tests.laws.image_universe import (
    FAMILIES,
    KEYS,
    Cluster,
    Object,
    Table,
    damage,
    damaged,
    from_scratch,
    plain_changes,
    plain_services,
    thorough,
)


class RenderedImage(DesiredImage):
    """An image that renders each service, also those that are plain."""

    def _plain(self, key: ObjectKey, state: ServiceState | None) -> None:
        return None


def parts_of(image: DesiredImage) -> dict[ObjectKey, Any]:
    """What an image holds of each service."""
    return {
        key: (held.sets, held.keys, [(listed.where, listed.elements()) for listed in held.lists])
        for key, held in image._held.items()
    }


@FAMILIES
@thorough
@given(
    first=st.lists(plain_services, min_size=2, max_size=2),
    endpoints=st.lists(plain_changes, min_size=1, max_size=4),
    later=st.lists(plain_changes, max_size=4),
    edits=damage,
    listed=st.booleans(),
)
def test_plain_services_get_what_is_rendered_for_them(
    family: Family, first: list[Object], endpoints: list[Any], later: list[Any], edits: list[Any], listed: bool
) -> None:
    """On empty tables, and on those of an earlier agent, whatever they hold; also after the next change."""
    cluster = Cluster()
    for change in (*zip(KEYS, ("service", "service"), first, strict=False), *endpoints):
        cluster.change(*change)
    found = damaged(from_scratch(cluster, family).programmed, edits)

    for earlier in (None, found):
        table, rendered = (Table(family, earlier, listed=listed, kind=kind) for kind in (DesiredImage, RenderedImage))
        for step in ((), later) if earlier is not None else ((),):
            for change in step:
                cluster.change(*change)

            assert table.sync(cluster) == rendered.sync(cluster)
            assert table.desired.image == rendered.desired.image
            assert parts_of(table.desired) == parts_of(rendered.desired)
