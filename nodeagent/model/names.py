"""Names of things in the cluster."""

from typing import NamedTuple

from nodeagent.model.addresses import Protocol


class ObjectKey(NamedTuple):
    """A namespaced object; cluster-scoped objects have an empty namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ServicePortName(NamedTuple):
    """One port of one Service: the unit that is balanced (name may be empty for a lone port)."""

    service: ObjectKey
    port: str
    protocol: Protocol

    def __str__(self) -> str:
        return f"{self.service}:{self.port}" if self.port else str(self.service)
