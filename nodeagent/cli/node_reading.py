"""Returns the view of the node for commands: from its agent, or without an agent from the source of the objects.

The modules that read a source are imported on demand, because they load the whole configuration.
"""

from dataclasses import replace

import msgspec

from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.cli.node_view import Access, NodeView, left_out_by
from nodeagent.daemon.collector import collect_rarely
from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.observe.admin.admin_client import AgentClient, AgentHangs, NoAgent, SocketForbidden, find_agent
from nodeagent.proxy.observe.admin.admin_documents import KnownProblem, Status, WorldHead, WorldService, WorldState
from nodeagent.proxy.observe.admin.place import DEFAULT_SOCKET
from nodeagent.proxy.translate.context import Context


def look_at_node(
    access: Access,
    only: ObjectKey | None = None,
    *,
    like: NodeView | None = None,
    states_only: bool = False,
    otherwise: str = "give --manifests DIRECTORY or --kubeconfig FILE",
) -> NodeView:
    """Returns the view of the node. Raises Failure.

    only: limits the agent's answer to one Service. like: translate the objects of a source for the node of this view.
    states_only: leaves out the Services and slices of an agent.
    otherwise: advice for the error message if there is no agent.
    """
    collect_rarely()  # all objects of a cluster have no cycles, and a command ends soon
    if access.names_source:
        from nodeagent.cli.source_view import configured, view_of_source  # noqa: PLC0415 - loads the configuration

        return replace(view_of_source(configured(access), "", like, only), agent_runs=_answers(access))
    try:
        client, status = find_agent(access.socket, DEFAULT_SOCKET)
        return _view_of_agent(client, status, only, states_only=states_only)
    except NoAgent as error:
        from nodeagent.cli.source_view import configured, view_of_source  # noqa: PLC0415 - as above

        config = configured(access)
        if config.source.manifests is None and config.source.kubeconfig is None:
            if isinstance(error, SocketForbidden):
                raise Failure(f"{error}; or {otherwise}", CANNOT_PROGRAM) from error
            do = ": restart it" if isinstance(error, AgentHangs) else ": what is programmed stays as it is; start it"
            raise Failure(f"{error}{do}, or {otherwise}", FAILED) from error
        return replace(view_of_source(config, f"; {error}", only=only), agent_runs=False)


def _answers(access: Access) -> bool:
    try:
        find_agent(access.socket, DEFAULT_SOCKET)
    except NoAgent:
        return False
    return True


def ask_agent(access: Access) -> tuple[AgentClient, Status]:
    """Returns a client of the running agent, and its status. Raises Failure if there is no agent."""
    try:
        return find_agent(access.socket, DEFAULT_SOCKET)
    except SocketForbidden as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except NoAgent as error:
        raise Failure(f"{error}: is it running? (--socket names another place)", FAILED) from error


def _view_of_agent(client: AgentClient, status: Status, only: ObjectKey | None, *, states_only: bool) -> NodeView:
    lines = client.lines("world" if only is None else f"world?service={only}")
    head = msgspec.json.decode(next(lines), type=WorldHead)
    context = msgspec.json.decode(head.context, type=Context | None)
    if context is None:
        raise Failure(f"the agent at {client.path} is not ready: {status.awaited}", FAILED)
    kind: type[WorldState | WorldService] = WorldState if states_only else WorldService
    decoder = msgspec.json.Decoder(kind)
    found = [decoder.decode(line) for line in lines]
    objects = [one for one in found if isinstance(one, WorldService)]
    others = () if found or only is None else tuple(map(_key, client.ask("services", list[str])))
    known = client.ask("problems", tuple[KnownProblem, ...])
    since = {Problem(one.subject, one.reason, one.detail): one.since for one in known}
    return NodeView(
        origin=f"the agent of node {status.node} at {client.path} (process {status.pid}, {status.source})",
        context=context,
        node=head.node,
        services={one.key: one.service for one in objects if one.service is not None},
        slices={one.key: one.slices for one in objects},
        states={one.key: one.state for one in found if one.state is not None},
        problems=tuple(since),
        families=tuple(map(Family, status.families)),
        agent=status,
        program=msgspec.json.decode(head.program, type=dict[Family, ProgramOptions]),
        since=since,
        others=others,
        interface=head.interface,
        own_addresses=head.own_addresses,
        names_at=head.names_at,
        strays=head.strays,
        taken=head.taken,
        left_out=left_out_by(only, head.unwatched),
        unwatched=head.unwatched,
    )


def _key(name: str) -> ObjectKey:
    namespace, _, short = name.rpartition("/")
    return ObjectKey(namespace, short)
