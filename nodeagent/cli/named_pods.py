"""A pod that a person names: where it is, and its addresses, as the API server says."""

from collections.abc import Iterable
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec

from nodeagent.model.names import ObjectKey
from nodeagent.proxy.source.client.api_errors import MalformedAnswerError

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
    """What of a pod says where its connections come from."""

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def node(self) -> str:
        """Empty while it is on no node."""
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
    """Raises KubeError."""
    namespace, name = quote(key.namespace, safe=""), quote(key.name, safe="")
    return _decoded(await getter.get(f"/api/v1/namespaces/{namespace}/pods/{name}"), NamedPod)


async def pod_with_address(getter: Getter, address: str) -> NamedPod | None:
    """The pod of no host network that has this address; None where there is no such pod. Raises KubeError."""
    body = await getter.get("/api/v1/pods", (("fieldSelector", f"status.podIP={address}"),))
    found = _decoded(body, _PodList).items
    return next((one for one in found if address in one.addresses and not one.spec.host_network), None)


def _decoded(body: bytes, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise MalformedAnswerError(f"an answer that is no pod: {error}") from error
