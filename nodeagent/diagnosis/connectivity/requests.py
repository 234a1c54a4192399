"""What a source is asked to do, and what it saw: the JSON that `pod_program` reads and writes (pure)."""

from msgspec import Struct

from nodeagent.model.addresses import Family


class Request(Struct, frozen=True):
    """kind: `tcp` and `udp` talk to a server, `resolve` looks up a host, `query` sends a DNS
    message. host: an address or a name. count: how many conversations, one after the other until one fails. size:
    bytes that are sent and must come back. seconds: for each. message: of a query, in hexadecimal digits."""

    kind: str
    family: Family = Family.IPV4
    host: str = ""
    port: int = 0
    count: int = 1
    size: int = 16
    seconds: float = 5.0
    message: str = ""


class Answer(Struct, frozen=True):
    """One conversation. server: the pod that answered. peer: the client's address as the pod saw it, own: as the client
    has it. error: why it failed, empty when it did not."""

    server: str = ""
    peer: str = ""
    own: str = ""
    error: str = ""


class RequestResult(Struct, frozen=True):
    """What came of a request. addresses: of a lookup. message: of a query, in hexadecimal digits. error: why
    there is nothing."""

    answers: tuple[Answer, ...] = ()
    addresses: tuple[str, ...] = ()
    message: str = ""
    error: str = ""


class RequestBatch(Struct, frozen=True):
    """Requests for one source, and how long all of them may take."""

    requests: tuple[Request, ...]
    seconds: float
