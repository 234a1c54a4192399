"""The events into which `nodeagent.proxy.source.watch` translates the answers of a list and a watch. Pure."""

from typing import Generic

from msgspec import Struct

from nodeagent.model.names import ObjectKey
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.decode import O, Undecodable


class Listed(Struct, Generic[O], frozen=True):
    """Objects that belong to the full list being delivered."""

    objects: list[O]
    undecodable: list[Undecodable]


class Unlisted(Struct, frozen=True):
    """The object was deleted while the full list was being delivered."""

    key: ObjectKey


class Completed(Struct, frozen=True):
    """The full list is complete."""

    resource_version: str


class Put(Struct, Generic[O], frozen=True):
    """The object was added or changed; this is its latest version."""

    object: O


class Gone(Struct, frozen=True):
    """The object was deleted."""

    key: ObjectKey


class Spoiled(Struct, frozen=True):
    """The latest version of an object cannot be decoded."""

    undecodable: Undecodable


class Failed(Struct, frozen=True):
    """The watch is not usable any more; the caller closes it and acts on `error` (log, wait), then asks `next_request`.

    at_once: the server refused to stream a list. That is no failure: the next request asks for pages.
    """

    error: KubeError
    at_once: bool = False


Event = Listed[O] | Unlisted | Completed | Put[O] | Gone | Spoiled | Failed
