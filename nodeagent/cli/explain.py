"""`nodeagent explain`: why a Service works on this node, or why not."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType

import click
from msgspec.structs import replace

from nodeagent.cli.all_nodes.cluster_options import BRIEF, ClusterTarget, cluster_options
from nodeagent.cli.asking import access_options, verdict_style
from nodeagent.cli.carried_addresses import missing_addresses
from nodeagent.cli.columns import Column
from nodeagent.cli.endpoint_probes import probe_endpoints, probe_services
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.kernel_view import KernelView, read_kernel
from nodeagent.cli.known_names import complete_namespace, complete_service
from nodeagent.cli.node_reading import look_at_node
from nodeagent.cli.node_view import Access, NodeView
from nodeagent.cli.on_this_node import FollowedConnections, follow_service, follow_services, node_faults
from nodeagent.cli.rows import is_terminal, output_option, print_document, print_rows
from nodeagent.cli.service_argument import ServiceArgument, find_service, parse_service
from nodeagent.diagnosis.explain.explanation_text import lines_of
from nodeagent.diagnosis.explain.kernel import KernelService, NodeFault, Probe
from nodeagent.diagnosis.explain.reservations import reservations
from nodeagent.diagnosis.explain.service import Explanation, explain_missing, explain_service
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.diagnosis.tables.deviation import is_as_wanted
from nodeagent.diagnosis.verdict_line import verdict_line
from nodeagent.model.addresses import parse_address
from nodeagent.model.names import ObjectKey
from nodeagent.model.taken import AddressesInUse, addresses_in_use
from nodeagent.proxy.dataplane.errors import DataplaneError

WATCH_SECONDS = 2.0
MOST_BRIEF = 100
"""The most Services in a brief document, so that it has only some kilobytes if all are broken."""
SETTLING_LOOKS = 5
SETTLING_SECONDS = 0.2
"""The kernel may lag behind a working agent: a difference counts only if it lasts for all looks."""

Shown = tuple[bool, Callable[[], None], object]
"""Whether it is healthy, a function that prints it, and a value to compare it by."""


COLUMNS = (
    Column("service", "SERVICE"),
    Column("severity", "STATE"),
    Column("what", "WHAT, AND WHY"),
    Column("do", "WHAT TO DO"),
    Column("also", "ALSO", number=True),
)


@click.command(
    "explain",
    epilog=examples(
        "nodeagent explain                          all Services that are not healthy, worst first",
        "nodeagent explain shop/web                 one Service, all its ports",
        "nodeagent explain svc/web -n shop          the same, as kubectl names it",
        "nodeagent explain 10.96.0.10               the Service that has this address; 30080: this node port",
        "nodeagent explain web:https -o json        one port of default/web; the verdict is the first field",
        "nodeagent explain web --from 203.0.113.7   may this client connect?",
        "nodeagent explain web --manifests DIR      without an agent",
        "nodeagent explain web --all-nodes          on every node of the cluster, worst first",
    ),
)
@click.argument("service", shell_complete=complete_service, required=False)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    shell_complete=complete_namespace,
    help="Namespace of a Service that is named without one (default: default).",
)
@click.option("--watch", is_flag=True, help="Repeat every two seconds, and print changes, until Ctrl-C.")
@click.option("--from", "client", metavar="ADDRESS", help="Explain it for a client with this address.")
@click.option("--probe/--no-probe", default=None, help="Connect to the endpoints; by default for one Service only.")
@click.option("--follow", is_flag=True, hidden=True, help="Follow connections through the rules also with --no-probe.")
@click.option("--brief", is_flag=True, help="With -o json or yaml: only findings, of at most 100 Services.")
@output_option
@cluster_options()
@access_options
def explain_command(
    service: str | None,
    namespace: str | None,
    watch: bool,
    client: str | None,
    probe: bool | None,
    follow: bool,
    brief: bool,
    output: str,
    access: Access,
    cluster: ClusterTarget | None,
) -> None:
    """Why does SERVICE ([NAMESPACE/]NAME[:PORT]) work on this node, or why not?

    SERVICE may also be svc/NAME, a DNS name (NAME.NAMESPACE.svc.cluster.local), an ADDRESS[:PORT] of it, or a node port.

    The first line is the verdict; below it everything that it follows from, from the API object to the elements in the
    kernel. Without SERVICE: all that are not healthy, worst first.

    Exit codes: 0 healthy, 1 not healthy or failed, 2 wrong arguments, 130 ended by Ctrl-C.
    """
    if client is not None and (client := parse_address(client)) is None:
        raise Failure("--from wants an IP address", UNUSABLE)
    default = "default" if cluster is None else cluster.default_namespace
    asked = None if service is None else parse_service(service, namespace, default)
    if cluster is not None:
        from nodeagent.cli.all_nodes.cluster_question import exit_with_answers  # noqa: PLC0415 - loads a client

        exit_with_answers(cluster, _command(asked, client, probe=probe), output)
    look: Callable[[], Shown]
    if asked is None:
        look = partial(_all, access, client or "", probe=bool(probe), output=output, brief=brief)
    else:
        wanted = probe is not False
        look = partial(
            _one, access, asked, client or "", probe=wanted, follow=wanted or follow, output=output, brief=brief
        )
    healthy = _watch(look) if watch else _print(*look())
    click.get_current_context().exit(0 if healthy else FAILED)


def _command(asked: ServiceArgument | None, client: str | None, *, probe: bool | None) -> list[str]:
    """Returns the command for the agent of each node."""
    words = ["explain", BRIEF, "-o", "json"]
    words += [] if asked is None else [str(asked)]
    words += ["--from", client] if client else []
    return [*words, *([] if probe is None else ["--probe" if probe else "--no-probe"])]


def _print(healthy: bool, show: Callable[[], None], _: object) -> bool:
    show()
    return healthy


def _watch(look: Callable[[], Shown]) -> bool:
    """Prints the result each time it changes, until Ctrl-C raises KeyboardInterrupt."""
    before: object = None
    while True:
        _, show, compared = look()
        if compared != before:
            if is_terminal():
                click.clear()
            show()
        before = compared
        time.sleep(WATCH_SECONDS)


def _one(
    access: Access, asked: ServiceArgument, client: str, *, probe: bool, follow: bool, output: str, brief: bool
) -> Shown:
    key, port = (asked.key, asked.port) if asked.key is not None else find_service(look_at_node(access), asked)
    view, explanation = _settled(access, key, port, client, probe=probe, follow=follow)

    def show() -> None:
        if output in ("json", "yaml"):
            print_document((_brief if brief else document)(explanation, view.origin), output)
        elif output == "name":
            click.echo(explanation.service)
        else:
            verdict, *rest = lines_of(explanation, view.origin, wide=output == "wide")
            click.echo(verdict_style(verdict, good=explanation.healthy))
            click.echo("\n".join(rest))

    return explanation.healthy, show, explanation


def _settled(
    access: Access, key: ObjectKey, port: str, client: str, *, probe: bool, follow: bool
) -> tuple[NodeView, Explanation]:
    """Explains a Service, repeatedly while the agent may still be programming it.

    The first look reads only the Service's own elements; if they are not as wanted, the next look reads whole tables.
    """
    for look in range(SETTLING_LOOKS):
        view = look_at_node(access, key)
        kernel = _kernel(view, key if look == 0 else None)
        followed = FollowedConnections() if kernel is None or not follow else _followed(view, kernel, key, client)
        faults = () if kernel is None else _faults(view)
        explanation = explain(
            view,
            key,
            kernel,
            port=port,
            client=client,
            probe=probe,
            missing=_missing(view, key),
            followed=followed,
            faults=faults,
        )
        deviating = any(one.deviations or one.not_local for one in explanation.kernel or ())
        received_only = not explanation.healthy and view.agent is not None and view.states.get(key) is None
        if not (deviating or received_only) or (view.agent is None and look > 0):
            break
        if view.agent is not None:
            time.sleep(SETTLING_SECONDS)
    return view, explanation


def _all(access: Access, client: str, *, probe: bool, output: str, brief: bool) -> Shown:
    view = look_at_node(access)
    with ThreadPoolExecutor(1) as beside:
        probing = beside.submit(probe_services, view.states) if probe else None
        kernel = _kernel(view)
        faults = () if kernel is None else _faults(view)
        followed = FollowedConnections() if kernel is None else _followed(view, kernel)
        missing = _missing(view)
        probes = {} if probing is None else probing.result()
    found = explain_all(view, kernel, client=client, probes=probes, missing=missing, faults=faults, followed=followed)
    bad = sorted((one for one in found if not one.healthy), key=lambda one: (-one.rank, one.service))
    tried = f", of which {sum(map(bool, probes.values()))} were tried" if probe else ""
    unseen = reservations(view.problems, followed.unseen, of_all=True)
    verdict = f"healthy: {len(view.services)} Services{tried}{unseen}"
    if bad:
        counted = f"{len(bad)} of {len(view.services)} Services{tried}"
        verdict = verdict_line("not healthy", counted, f"{bad[0].service} is {bad[0].verdict}")

    def show() -> None:
        if output in ("json", "yaml"):
            shown = [_brief(one) for one in bad[:MOST_BRIEF]] if brief else bad
            of_all = {"verdict": verdict, "healthy": not bad, "origin": view.origin, "bad": len(bad)}
            print_document({**of_all, "services": shown}, output)
            return
        if output != "name":
            click.echo(verdict_style(verdict, good=not bad))
            click.echo(f"from: {view.origin}")
        if bad:
            rows = [
                {
                    "service": one.service,
                    "severity": one.severity,
                    "what": f"{one.findings[0].what}, because {one.findings[0].because}",
                    "do": one.findings[0].do,
                    "also": len(one.findings) - 1,
                }
                for one in bad
            ]
            print_rows(COLUMNS, rows, output, wide=frozenset({"do", "also"}), name="service")

    return not bad, show, bad


def document(one: Explanation, origin: str) -> dict[str, object]:
    """Returns the explanation with its origin as a document; the verdict is the first field."""
    fields: dict[str, object] = {name: getattr(one, name) for name in one.__struct_fields__}
    return {"verdict": fields.pop("verdict"), "healthy": fields.pop("healthy"), "origin": origin, **fields}


def _brief(one: Explanation, origin: str = "") -> dict[str, object]:
    """Returns the findings on a Service, without the facts behind them."""
    fields = document(one, origin)
    return {name: fields[name] for name in ("verdict", "healthy", "origin", "severity", "service", "findings")}


def explain_all(
    view: NodeView,
    kernel: Sequence[KernelView] | None,
    *,
    as_wanted: bool | None = None,
    client: str = "",
    probes: Mapping[ObjectKey, tuple[Probe, ...]] = MappingProxyType({}),
    missing: AbstractSet[str] = frozenset(),
    faults: Sequence[NodeFault] = (),
    followed: FollowedConnections | None = None,
) -> Iterator[Explanation]:
    """Yields an explanation of every Service of the view, sorted by name; of a healthy one it may lack what the kernel has.

    as_wanted: whether the tables are known to have the wanted elements and no others; None: they are compared here. The other
    parameters are those of `explain`.
    """
    taken = addresses_in_use(view.states.values(), view.context.node_addresses)
    if as_wanted is None:
        as_wanted = all(is_as_wanted(view.states, view.node, table.family, table.image) for table in kernel or ())
    explained = partial(
        explain,
        view,
        kernel=kernel,
        client=client,
        flows=False,
        missing=missing,
        taken=taken,
        faults=faults,
        followed=followed,
        probes=probes,
        as_wanted=as_wanted,
    )
    yield from map(explained, sorted(view.services))


def explain(
    view: NodeView,
    key: ObjectKey,
    kernel: Sequence[KernelView] | None,
    *,
    port: str = "",
    client: str = "",
    probe: bool = False,
    flows: bool = True,
    missing: AbstractSet[str] = frozenset(),
    taken: AddressesInUse | None = None,
    followed: FollowedConnections | None = None,
    faults: Sequence[NodeFault] = (),
    probes: Mapping[ObjectKey, tuple[Probe, ...]] | None = None,
    as_wanted: bool = False,
) -> Explanation:
    """Explains one Service of the view.

    flows: read tracked connections. missing: ClusterIPs that the service interface lacks. taken: addresses of all Services;
    None: computed here. followed, faults: effects of the node on connections. probes: results by Service; None: those of `probe`.
    as_wanted: the tables are known to have the wanted elements; then the explanation of a healthy Service lacks them.
    """
    if key in view.left_out:
        other, slices = view.left_out[key]
        return explain_service(ServiceFacts(service=other, slices=tuple(slices), context=view.context, state=None))
    service = view.services.get(key)
    if service is None:
        return explain_missing(key, [*view.services, *view.others], view.problems, view.unwatched)
    state = view.states.get(key)
    found: list[KernelService] | None = None
    if kernel is not None:
        compared = not as_wanted
        found = [
            table.of_service(key, state, flows=flows, missing=missing, listed=compared, compared=compared)
            for table in kernel
        ]
    facts = ServiceFacts(
        service=service,
        slices=tuple(view.slices.get(key, ())),
        context=view.context,
        state=state,
        problems=view.problems,
        kernel=found,
        port=port,
        client=client,
        agent_runs=view.agent_runs,
        service_ranges=view.node.service_cidrs,
        taken=taken or view.taken or addresses_in_use(view.states.values(), view.context.node_addresses),
        pod_ranges=view.node.pod_cidrs,
        node_port_ranges=view.node.node_port_cidrs,
        astray=() if view.slices.get(key) else tuple(view.strays),
        stopped=() if followed is None else followed.stopped.get(key, ()),
        unseen=() if followed is None else followed.unseen,
        node_faults=faults,
        names_at=tuple(view.names_at),
        probes=() if probes is None else probes.get(key, ()),
    )
    if probe and probes is None and state is not None:
        facts = replace(facts, probes=probe_endpoints(state, [one.name or "" for one in facts.ports]))
    explained = explain_service(facts)
    if kernel is None or explained.healthy or not as_wanted:
        return explained
    listed = tuple(table.of_service(key, state, flows=flows, missing=missing, compared=False) for table in kernel)
    return replace(explained, kernel=listed)


def _faults(view: NodeView) -> tuple[NodeFault, ...]:
    """Returns the faults of the node; empty if this process lacks the permission to read them."""
    try:
        return node_faults(view.families, view.node.pod_cidrs)
    except (DataplaneError, OSError):
        return ()


def _followed(
    view: NodeView, kernel: Sequence[KernelView], key: ObjectKey | None = None, client: str = ""
) -> FollowedConnections:
    """Follows connections to a Service, or to some of all; if that fails, returns the reason in `unseen`."""
    state = None if key is None else view.states.get(key)
    tables = {table.family: table.reading for table in kernel}
    try:
        if key is None:
            return follow_services(tables)
        return FollowedConnections() if state is None else follow_service(state, client, tables)
    except (DataplaneError, OSError) as error:
        return FollowedConnections(unseen=(f"connections were not followed: {error}",))


def _missing(view: NodeView, only: ObjectKey | None = None) -> frozenset[str]:
    """Returns the ClusterIPs that the service interface lacks; empty if it cannot be read."""
    try:
        return missing_addresses(view, only)
    except OSError:
        return frozenset()


def _kernel(view: NodeView, only: ObjectKey | None = None) -> list[KernelView] | None:
    """Reads the tables, or only the elements of one Service. Prints a note and returns None if they cannot be read."""
    program = view.program if view.agent is not None else None
    state = None if only is None else view.states.get(only)
    sticky = only is None or (state is not None and any(one.affinity_seconds is not None for one in state.frontends))
    try:
        return read_kernel(view.families, program, only, affinity=sticky)
    except (DataplaneError, OSError) as error:
        click.echo(f"nodeagent: note: the kernel was not read: {error}", err=True)
        return None
