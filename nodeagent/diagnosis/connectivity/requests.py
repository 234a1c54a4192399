"""The requests to a source, and its results: the JSON that `pod_program` reads and writes (pure)."""

from msgspec import Struct

from nodeagent.model.addresses import Family


class Request(Struct, frozen=True):
    """A request that a test pod carries out.
    kind: `tcp` and `udp` talk to a server, `resolve` looks up a host, `query` sends a DNS message. host: an address
    or a name. count: conversations, one after the other until one fails. size: bytes that are sent and must come back.
    seconds: timeout of each. message: of a query, in hexadecimal digits."""

    kind: str
    family: Family = Family.IPV4
    host: str = ""
    port: int = 0
    count: int = 1
    size: int = 16
    seconds: float = 5.0
    message: str = ""


class PodAnswer(Struct, frozen=True):
    """One conversation. server: the pod that answered. peer: the client's address as the pod saw it; own: as the client
    sees it. error: why it failed; empty if it did not."""

    server: str = ""
    peer: str = ""
    own: str = ""
    error: str = ""


class RequestResult(Struct, frozen=True):
    """The result of a request. addresses: of a lookup. message: of a query, in hexadecimal. error: why it failed."""

    answers: tuple[PodAnswer, ...] = ()
    addresses: tuple[str, ...] = ()
    message: str = ""
    error: str = ""


class RequestBatch(Struct, frozen=True):
    """Requests for one source, and the time for all of them in seconds."""

    requests: tuple[Request, ...]
    seconds: float
