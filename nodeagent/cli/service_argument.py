"""The forms in which a user may name a Service: like kubectl, by DNS name, by address or by node port."""

from ipaddress import ip_address

from msgspec import Struct

from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.node_view import NodeView
from nodeagent.model.addresses import endpoint_text
from nodeagent.model.frontend import FrontendKind
from nodeagent.model.names import ObjectKey

_KINDS = frozenset({"svc", "service", "services"})
_HIGHEST_PORT = 65535


class ServiceArgument(Struct, frozen=True):
    """A named Service: `key`, or else `address` or `node_port`. port: name or number; empty: all ports."""

    key: ObjectKey | None = None
    port: str = ""
    address: str = ""
    node_port: int = 0

    def __str__(self) -> str:
        """The text that `parse_service` accepts on any node."""
        if self.key is not None:
            return f"{self.key}:{self.port}" if self.port else str(self.key)
        if self.node_port:
            return str(self.node_port)
        return endpoint_text(self.address, int(self.port)) if self.port else self.address


def parse_service(text: str, namespace: str | None = None, default: str = "default") -> ServiceArgument:
    """Parses `[KIND/ or NAMESPACE/]NAME[:PORT]`, a DNS name (`NAME.NAMESPACE.svc…`), an address or a node port.

    namespace: that of --namespace, for a name without one; None: `default`. `svc/web` is a kind and a name, as for kubectl.
    Raises Failure.
    """
    if text.isdecimal() and 0 < int(text) <= _HIGHEST_PORT:
        return ServiceArgument(node_port=int(text))
    if (found := _address(text)) is not None:
        return found
    name, _, port = text.partition(":")
    before, slash, short = name.rpartition("/")
    if slash and before.lower() in _KINDS:
        before = ""
    elif slash and (not before or "/" in before):
        raise _no_service(text)
    labels = short.split(".")
    if len(labels) > 2 and labels[2] == "svc":  # noqa: PLR2004  # after name and namespace
        short, inside = labels[0], labels[1]
        before = before or inside
    if not short:
        raise _no_service(text)
    if before and namespace not in (None, before):
        raise Failure(f"{text!r} is of namespace {before}, and --namespace is {namespace}", UNUSABLE)
    return ServiceArgument(ObjectKey(before or namespace or default, short), port)


def _address(text: str) -> ServiceArgument | None:
    """Parses `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; returns None for other text."""
    host, colon, port = text.rpartition(":")
    for address, number in ((text, ""), (host.strip("[]"), port)) if colon else ((text, ""),):
        try:
            return ServiceArgument(address=str(ip_address(address)), port=number)
        except ValueError:
            continue
    return None


def _no_service(text: str) -> Failure:
    return Failure(
        f"{text!r} is not a Service: [NAMESPACE/]NAME[:PORT], svc/NAME, NAME.NAMESPACE.svc, an address or a node port",
        UNUSABLE,
    )


def find_service(view: NodeView, asked: ServiceArgument) -> tuple[ObjectKey, str]:
    """Returns the Service with the address or node port, and the name of its port (empty: all). Raises Failure if no
    Service has it."""
    wanted = f"node port {asked.node_port}" if asked.node_port else f"address {asked.address}"
    for key, state in sorted(view.states.items()):
        for one in state.frontends:
            if asked.node_port:
                if one.kind is FrontendKind.NODE_PORT and one.port == asked.node_port:
                    return key, one.service_port.port
            elif one.address == asked.address and asked.port in ("", str(one.port)):
                return key, one.service_port.port if asked.port else ""
    at = f" and port {asked.port}" if asked.address and asked.port else ""
    raise Failure(f"no Service has {wanted}{at} on this node: kubectl get services --all-namespaces", FAILED)
