"""`nodeagent explain`: why a Service works on this node, or why not."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click

from nodeagent.cli.all_nodes.cluster_options import BRIEF, ClusterTarget, cluster_options
from nodeagent.cli.asking import access_options, verdict_style
from nodeagent.cli.carried_addresses import missing_addresses
from nodeagent.cli.columns import Column
from nodeagent.cli.endpoint_probes import probe_endpoints, probe_services
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.explanations import document, explain, explain_unhealthy
from nodeagent.cli.kernel_view import KernelView, read_kernel
from nodeagent.cli.known_names import complete_namespace, complete_service
from nodeagent.cli.node_reading import look_at_node
from nodeagent.cli.node_view import Access, NodeView
from nodeagent.cli.on_this_node import follow_service, follow_services, node_faults
from nodeagent.cli.rows import is_terminal, output_option, print_document, print_rows
from nodeagent.cli.service_argument import ServiceArgument, find_service, parse_service
from nodeagent.diagnosis.checks.answering_hosts import HostsAsked
from nodeagent.diagnosis.explain.explanation_text import lines_of
from nodeagent.diagnosis.explain.kernel import FollowedConnections, NodeFault, Probe
from nodeagent.diagnosis.explain.reservations import reservations
from nodeagent.diagnosis.explain.service import Explanation
from nodeagent.diagnosis.explain.service_facts import ports_of
from nodeagent.diagnosis.verdict_line import verdict_line
from nodeagent.model.addresses import parse_address
from nodeagent.model.names import ObjectKey
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
        with HostsAsked(wanted=_is_programmed(kernel)) as hosts:
            followed = FollowedConnections() if kernel is None or not follow else _followed(view, kernel, key, client)
            faults = () if kernel is None else _faults(view, hosts)
        explanation = explain(
            view,
            key,
            kernel,
            port=port,
            client=client,
            probes=_probes(view, key, port) if probe else (),
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
        with HostsAsked(wanted=_is_programmed(kernel)) as hosts:
            followed = FollowedConnections() if kernel is None else _followed(view, kernel)
            faults = () if kernel is None else _faults(view, hosts)
        missing = _missing(view)
        probes = {} if probing is None else probing.result()
    found = explain_unhealthy(
        view, kernel, client=client, probes=probes, missing=missing, faults=faults, followed=followed
    )
    bad = sorted(found, key=lambda one: (-one.rank, one.service))
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


def _brief(one: Explanation, origin: str = "") -> dict[str, object]:
    """Returns the findings on a Service, without the facts behind them."""
    fields = document(one, origin)
    return {name: fields[name] for name in ("verdict", "healthy", "origin", "severity", "service", "findings")}


def _probes(view: NodeView, key: ObjectKey, port: str) -> tuple[Probe, ...]:
    """Connects to the endpoints of a Service. port: the name or number of a port; empty: all ports."""
    service, state = view.services.get(key), view.states.get(key)
    if service is None or state is None or key in view.left_out:
        return ()
    return probe_endpoints(state, [one.name or "" for one in ports_of(service, port)])


def _faults(view: NodeView, hosts: HostsAsked) -> tuple[NodeFault, ...]:
    """Returns the faults of the node; empty if this process lacks the permission to read them."""
    try:
        return node_faults(view.families, view.node.pod_cidrs, hosts)
    except (DataplaneError, OSError):
        return ()


def _is_programmed(kernel: Sequence[KernelView] | None) -> bool:
    """Returns whether tables of ours are in force here."""
    return any(table.reading is not None for table in kernel or ())


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
