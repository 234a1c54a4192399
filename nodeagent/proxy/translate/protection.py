"""Decides which external frontends would capture what the node needs itself (docs/semantics.md 74-77).

The API server, SSH, the kubelet and health checks are reached by TCP, names by UDP as well. ClusterIPs are not checked:
no address of a node or of the API server is in a service range, except that of the API server's own Service.
"""

from collections.abc import Iterable

from msgspec import Struct

from nodeagent.model.addresses import Protocol, endpoint_text
from nodeagent.model.frontend import Frontend, FrontendKind
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.protected import Protected, SocketAddress

HTTPS = 443

_KINDS = {FrontendKind.LOAD_BALANCER: "load-balancer IP", FrontendKind.EXTERNAL_IP: "external IP"}


class Protection(Struct, frozen=True):
    """What external frontends must not capture.

    ways: the addresses and ports of the API server and of a proxy to it. own: addresses of the node.
    ports: those protected at the node's own addresses. names, resolvers: as in `Protected`.
    """

    ways: frozenset[SocketAddress] = frozenset()
    own: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()
    names: frozenset[SocketAddress] = frozenset()
    resolvers: frozenset[SocketAddress] = frozenset()

    def reason_against(self, frontend: Frontend) -> str | None:
        """Returns why an external frontend is not allowed, as a text for users; None if it is."""
        detail = None
        if frontend.protocol is not Protocol.SCTP:
            detail = self._reason_by_names(frontend)
        if detail is None and frontend.protocol is Protocol.TCP:
            detail = self._reason_by_api_server(frontend)
        return detail

    def _reason_by_names(self, frontend: Frontend) -> str | None:
        port, protocol = frontend.port, frontend.protocol.name
        if frontend.address is None:
            if any(port == taken and address in self.own for address, taken in self.names):
                return f"node port {port}/{protocol} is where this node answers names: it does not answer"
            return None
        what = f"{_KINDS[frontend.kind]} {endpoint_text(frontend.address, port)}/{protocol}"
        if (frontend.address, port) in self.names:
            return f"{what} is where this node answers names: not captured"
        if frontend.kind is FrontendKind.EXTERNAL_IP and (frontend.address, port) in self.resolvers:
            return f"{what} is where this node asks for the name of the API server: not captured"
        return None

    def _reason_by_api_server(self, frontend: Frontend) -> str | None:
        port = frontend.port
        if frontend.address is None:
            if any(port == taken and address in self.own for address, taken in self.ways):
                return f"node port {port}/TCP is where this node reaches the API server: it does not answer"
            if port in self.ports:
                return f"node port {port}/TCP is protected by traffic.protectedPorts: it does not answer"
            return None
        what = f"{_KINDS[frontend.kind]} {endpoint_text(frontend.address, port)}/TCP"
        if (frontend.address, port) in self.ways:
            return f"{what} is where this node reaches the API server: not captured"
        if frontend.address in self.own and port in self.ports:
            return f"{what} is an address of this node, whose port {port} traffic.protectedPorts protects: not captured"
        return None


def protection(protected: Protected, node_addresses: Iterable[str], ports: Iterable[int]) -> Protection:
    """Returns what is protected with these `traffic.protectedPorts`; without any, only the connection to the API server is.

    The API server's port is added to them, unless it is that of HTTPS, which load balancers of a node's own use too.
    """
    own = protected.own.union(node_addresses)
    listed = frozenset(ports)
    closed = (listed | protected.api_ports - {HTTPS}) if listed else listed
    return Protection(protected.ways, own, closed, protected.names, protected.resolvers)


def without_protected(
    frontends: list[Frontend], key: ObjectKey, protection: Protection, problems: list[Problem]
) -> list[Frontend]:
    """Returns the frontends that are allowed; appends a problem for each other one."""
    kept = []
    for frontend in frontends:
        external = frontend.kind is not FrontendKind.CLUSTER_IP
        detail = protection.reason_against(frontend) if external else None
        if detail is None:
            kept.append(frontend)
        else:
            problems.append(Problem(f"Service {key}", "ProtectedAddress", detail))
    return kept
