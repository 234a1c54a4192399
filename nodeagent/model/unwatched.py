"""A Service that the agent does not watch, as the source of its objects has it."""

from msgspec import Struct

from nodeagent.model.objects import EndpointSlice, Service


class UnwatchedService(Struct, frozen=True):
    """service: None where the source has no Service of that name. silence: why the source was not asked or gave no answer, in one
    line; empty when it answered. slices: of a headless Service."""

    service: Service | None = None
    slices: tuple[EndpointSlice, ...] = ()
    silence: str = ""
