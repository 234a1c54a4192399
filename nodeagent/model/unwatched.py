"""A Service that the agent does not watch, as its source has it."""

from msgspec import Struct

from nodeagent.model.objects import EndpointSlice, Service


class UnwatchedService(Struct, frozen=True):
    """A Service as the source answered when asked. service: None if the source has no Service of that name. silence: why the
    source was not asked or did not answer, in one line; empty if it answered. slices: of a headless Service."""

    service: Service | None = None
    slices: tuple[EndpointSlice, ...] = ()
    silence: str = ""
