"""Names for shell completion, from the agent of this node, else from the API server of the user's kubeconfig.

The API server has two seconds to answer. A source that cannot be reached gives no completions.
"""

import socket
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from nodeagent.cli.user_kubeconfig import kubeconfig_paths
from nodeagent.proxy.observe.admin.admin_client import NoAgent, find_agent
from nodeagent.proxy.observe.admin.place import DEFAULT_SOCKET
from nodeagent.wire.unreadable import UNREADABLE

SECONDS = 2.0
MOST = "500"
"""The limit of each list."""
CORE = "/api/v1"
SERVICE_KINDS = ("svc/", "service/", "services/")
OF_CLUSTER = ("all_nodes", "node", "selector", "context", "kubeconfig")
"""Options that may select another cluster than that of this node's agent."""


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Item(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _List(msgspec.Struct):
    items: tuple[_Item, ...] = ()


def complete_service(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the Services that begin with `incomplete`; those of the selected namespace also without the namespace."""
    return _completions(_service_names(ctx, incomplete), incomplete)


def complete_node(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the nodes that begin with `incomplete`."""
    return _completions(_nodes(ctx), incomplete)


def complete_namespace(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the namespaces that begin with `incomplete`: all of the API server, else those with Services."""
    listed = _list_names(ctx, f"{CORE}/namespaces")
    found = listed or [one.partition("/")[0] for one in _services(ctx, "")]
    return _completions(found, incomplete)


def complete_context(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the contexts of the kubeconfig that begin with `incomplete`."""
    from nodeagent.proxy.source.client.api_errors import KubeconfigError  # noqa: PLC0415 - loads a client
    from nodeagent.proxy.source.client.kubeconfig import context_names  # noqa: PLC0415

    try:
        return _completions(context_names(_kubeconfigs(ctx)), incomplete)
    except KubeconfigError:
        return []


def complete_interface(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Returns the interfaces of this node that begin with `incomplete`."""
    return _completions([name for _, name in socket.if_nameindex()], incomplete)


def complete_connection_end(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns pods and nodes with their kind as prefix, and Services."""
    kind, slash, _rest = incomplete.partition("/")
    if slash and kind in ("pod", "po", "pods"):
        pods = _list_names(ctx, f"{CORE}/namespaces/{_namespace(ctx)}/pods")
        return _completions([f"{kind}/{name}" for name in pods], incomplete)
    if slash and kind in ("node", "no", "nodes"):
        return _completions([f"{kind}/{name}" for name in _nodes(ctx)], incomplete)
    return _completions(["pod/", "node/", *_service_names(ctx, incomplete)], incomplete)


def _completions(names: Sequence[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _service_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Returns names of Services in every form that may be typed."""
    given = _namespace(ctx)
    before, slash, _ = incomplete.partition("/")
    kind = f"{before}/" if slash and f"{before}/" in SERVICE_KINDS else ""
    names = _services(ctx, given if kind or not slash else before)
    short = [name.removeprefix(f"{given}/") for name in names if name.startswith(f"{given}/")]
    return [f"{kind}{name}" for name in short] if kind else [*names, *short]


def _services(ctx: click.Context, namespace: str) -> list[str]:
    """Returns `NAMESPACE/NAME` of the agent's Services, else of those the API server lists in `namespace` (empty: in all)."""
    known = [] if _asks_cluster(ctx) else _names_of_agent(ctx, "services")
    within = f"/namespaces/{namespace}" if namespace else ""
    return known or _list_names(ctx, f"{CORE}{within}/services", qualified=True)


def _nodes(ctx: click.Context) -> list[str]:
    known = [] if _asks_cluster(ctx) else _names_of_agent(ctx, "nodes")
    return known or _list_names(ctx, f"{CORE}/nodes")


def _asks_cluster(ctx: click.Context) -> bool:
    return any(ctx.params.get(name) for name in OF_CLUSTER)


def _namespace(ctx: click.Context) -> str:
    return str(ctx.params.get("namespace") or "default")


def _names_of_agent(ctx: click.Context, what: str) -> list[str]:
    """Returns the names that the agent knows; empty if no agent answers."""
    given = ctx.params.get("socket")
    try:
        client, _ = find_agent(Path(given) if given else None, DEFAULT_SOCKET)
        return client.ask(what, list[str])
    except (NoAgent, OSError, *UNREADABLE):
        return []


def _kubeconfigs(ctx: click.Context) -> tuple[Path, ...]:
    given = ctx.params.get("kubeconfig")
    return kubeconfig_paths(None if given is None else Path(str(given)))


def _list_names(ctx: click.Context, path: str, *, qualified: bool = False) -> list[str]:
    """Returns the names of the objects at `path`, with their namespace if `qualified`; empty if the API server cannot be
    asked."""
    places = _kubeconfigs(ctx)
    if not any(place.exists() for place in places):
        return []
    import asyncio  # noqa: PLC0415 - few commands need it

    from nodeagent.proxy.source.client.api_client import ApiClient  # noqa: PLC0415 - loads a client
    from nodeagent.proxy.source.client.api_errors import KubeError  # noqa: PLC0415
    from nodeagent.proxy.source.client.kubeconfig import load_kubeconfig  # noqa: PLC0415

    async def ask() -> bytes:
        access = load_kubeconfig(places, ctx.params.get("context"))
        async with asyncio.timeout(SECONDS), ApiClient(access, user_agent="nodeagent-completion") as client:
            return await client.get(path, (("limit", MOST),))

    try:
        listed = msgspec.json.decode(asyncio.run(ask()), type=_List)
    except (KubeError, TimeoutError, *UNREADABLE):
        return []
    found = [one.metadata for one in listed.items]
    return [f"{one.namespace}/{one.name}" if qualified else one.name for one in found]
