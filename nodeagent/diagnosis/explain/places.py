"""Addresses of a Service in words (pure)."""

from collections.abc import Sequence

from nodeagent.model.addresses import endpoint_text
from nodeagent.model.frontend import Frontend

_SHOWN = 3


def place_of(frontend: Frontend) -> str:
    """Returns a frontend in words: `10.96.0.10:80/TCP`, or `*:30080/TCP` for a node port."""
    return f"{endpoint_text(frontend.address or '*', frontend.port)}/{frontend.protocol.name}"


def places_of(frontends: Sequence[Frontend]) -> str:
    places = list(dict.fromkeys(place_of(one) for one in frontends))
    return ", ".join(places[:_SHOWN]) + (", …" if len(places) > _SHOWN else "")
