"""The answers at the admin socket, as values."""

from msgspec import Raw, Struct

from nodeagent.model.addresses_in_use import AddressesInUse
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.model.unwatched import UnwatchedService


class Status(Struct, frozen=True, kw_only=True):
    """The state of the agent. network_namespace: its number. awaited: what the agent waits for; empty if it has all it needs."""

    node: str
    version: str
    pid: int
    network_namespace: int
    source: str
    families: tuple[str, ...]
    ownership: str
    ready: bool
    awaited: str
    services: int
    problems: int
    started: str
    passes: int
    last_pass: str


class WorldHead(Struct, frozen=True, kw_only=True):
    """The first line of the world. context, program: of the translation and, by family, of the rules' options.

    interface: the service interface's name; None: there shall be no interface. own_addresses: what it carries besides ClusterIPs.
    names_at: the addresses at which names are answered. strays: the Services that slices name but that are not held, unless the query is for one Service that has slices. taken: for one
    Service: which addresses of its endpoints lead to Services. unwatched: for one Service that the agent does not hold: what its
    source has.
    """

    status: Status
    context: Raw
    node: NodeState
    program: Raw
    interface: str | None = None
    own_addresses: tuple[str, ...] = ()
    names_at: tuple[str, ...] = ()
    strays: tuple[ObjectKey, ...] = ()
    taken: AddressesInUse | None = None
    unwatched: UnwatchedService | None = None


class WorldService(Struct, frozen=True, kw_only=True):
    """One of the lines that follow. state: the desired state, conflicts resolved; None: there is nothing to program."""

    key: ObjectKey
    service: Service | None
    slices: tuple[EndpointSlice, ...] = ()
    state: ServiceState | None = None


class WorldState(Struct, frozen=True, kw_only=True):
    """What of such a line is read if only the states are wanted: in half the time."""

    key: ObjectKey
    state: ServiceState | None = None


class ClusterDns(Struct, frozen=True, kw_only=True):
    """How an agent answers DNS queries. enabled: whether it does; if not, it holds no headless Services. addresses: where.
    namespaces: all known ones. upstreams, stub_zones: the servers for other names, and for those of a zone; no upstreams: the
    node's resolvers. running: the queried address, with the namespaces of the pods that have it."""

    enabled: bool
    zones: tuple[str, ...] = ()
    ttl: int = 0
    pods: str = ""
    server: tuple[str, str] = ("", "")
    addresses: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    running: tuple[tuple[str, tuple[str, ...]], ...] = ()
    upstreams: tuple[str, ...] = ()
    stub_zones: tuple[tuple[str, str], ...] = ()


class KnownProblem(Struct, frozen=True):
    """A problem and when it appeared (RFC 3339, UTC)."""

    since: str
    subject: str
    reason: str
    detail: str


class TableWork(Struct, frozen=True):
    """What a pass did to the table of one family."""

    family: str
    elements: int
    messages: int
    new_table: bool
    seconds: float
    error: str | None


class Transaction(Struct, frozen=True):
    """A pass that changed something or failed. services: how many changed; names: some of them."""

    at: str
    seconds: float
    waited_seconds: float
    full: bool
    services: int
    names: tuple[str, ...]
    tables: tuple[TableWork, ...]


class TableBelief(Struct, frozen=True):
    """What the agent believes of the table of one family; `known` is false until the kernel has been read.

    elements: the number of elements in each set.
    """

    family: str
    known: bool
    usable: bool = False
    claimed: bool = False
    program_right: bool = False
    elements: dict[str, int] = {}


LOG_LEVELS = ("debug", "info", "warning", "error")


class LogLevelDocument(Struct, frozen=True):
    """The level of the log: one of LOG_LEVELS, as in `logging.level`."""

    level: str
