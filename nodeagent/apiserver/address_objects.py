"""The IPAddress objects that record which Service holds a cluster address."""

from collections.abc import Callable
from typing import Final

from nodeagent.apiserver.machinery.managed import Manager, track_update
from nodeagent.apiserver.storage.records import draft
from nodeagent.kinds.description.decoding import empty, normalise
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.moments import rfc3339
from nodeagent.kinds.ipaddress import SHAPES

_MANAGER: Final = "kube-apiserver"
_TIME: Final = "2000-01-01T00:00:00Z"


class AddressObjects:
    """Builds IPAddress objects of allocated addresses from a template, one for each new Service. `clock`: seconds since 1970."""

    def __init__(self, uid: Callable[[], str], clock: Callable[[], float]) -> None:
        self._uid = uid
        self._clock = clock
        self._templates = {family: _template(family) for family in ("IPv4", "IPv6")}

    def describe(self, address: str, namespace: str, name: str) -> bytes:
        """Returns a draft of the IPAddress that records the Service as the holder. Names need no escaping in JSON."""
        now = rfc3339(int(self._clock()))
        return self._templates["IPv6" if ":" in address else "IPv4"] % (
            address.encode(),
            self._uid().encode(),
            now.encode(),
            now.encode(),
            namespace.encode(),
            name.encode(),
        )


def _template(family: str) -> bytes:
    """Returns an encoded IPAddress with %b for name, UID, creation time, the owner's time, and the Service's path."""
    labels = {
        "ipaddress.kubernetes.io/ip-family": family,
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    parent = {"resource": "services", "namespace": "%b", "name": "%b"}
    document: Document = {"metadata": {"labels": labels}, "spec": {"parentRef": parent}}
    struct = SHAPES["IPAddress"]
    track_update(struct, empty(struct), document, Manager("Update", _MANAGER, "networking.k8s.io/v1"), "%b")
    document["metadata"] |= {"name": "%b", "uid": "%b", "resourceVersion": "0"}
    # `normalise` checks times, so their placeholders are inserted afterwards.
    document["metadata"]["creationTimestamp"] = document["metadata"]["managedFields"][0]["time"] = _TIME
    return draft(normalise(struct, document)).replace(_TIME.encode(), b"%b")
