"""Finds the node and addresses of a pod through the API server."""

from collections.abc import Iterable
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec

from nodeagent.model.names import ObjectKey
from nodeagent.proxy.source.client.api_errors import MalformedAnswerError
from nodeagent.wire.unreadable import UNREADABLE

Kind = TypeVar("Kind")
POD_KINDS = frozenset({"pod", "pods", "po"})
NODE_KINDS = frozenset({"node", "nodes", "no"})


class _PodIP(msgspec.Struct, frozen=True):
    ip: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    host_network: bool = False


class _PodStatus(msgspec.Struct, frozen=True):
    pod_ips: tuple[_PodIP, ...] = msgspec.field(default=(), name="podIPs")


class NamedPod(msgspec.Struct, frozen=True):
    """The fields of a pod that tell where its connections come from."""

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def node(self) -> str:
        """The name of its node; empty until it is scheduled."""
        return self.spec.node_name

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(one.ip for one in self.status.pod_ips)


class _PodList(msgspec.Struct, frozen=True):
    items: tuple[NamedPod, ...] = ()


class Getter(Protocol):
    """The part of `ApiClient` that reads."""

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes: ...


async def pod_named(getter: Getter, key: ObjectKey) -> NamedPod:
    """Returns a pod. Raises KubeError, also if it does not exist."""
    namespace, name = quote(key.namespace, safe=""), quote(key.name, safe="")
    return decoded(await getter.get(f"/api/v1/namespaces/{namespace}/pods/{name}"), NamedPod)


async def pod_with_address(getter: Getter, address: str) -> NamedPod | None:
    """Returns the pod with this address, or None; ignores pods in the host network. Raises KubeError."""
    body = await getter.get("/api/v1/pods", (("fieldSelector", f"status.podIP={address}"),))
    found = decoded(body, _PodList).items
    return next((one for one in found if address in one.addresses and not one.spec.host_network), None)


def decoded(body: bytes, kind: type[Kind]) -> Kind:
    """Decodes an answer of an API server. Raises MalformedAnswerError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as error:
        raise MalformedAnswerError(f"the answer cannot be read: {error}") from error
