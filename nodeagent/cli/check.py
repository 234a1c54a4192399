"""`nodeagent check`: whether the kernel has what is needed, and whether two readers see the same tables."""

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path

import click

from nodeagent.cli.agent_check import agent_finding
from nodeagent.cli.all_nodes.cluster_options import ClusterTarget, cluster_options
from nodeagent.cli.columns import Column
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED
from nodeagent.cli.kernel_reading import kernel_failures
from nodeagent.cli.kernel_view import Known
from nodeagent.cli.other_tables import read_others
from nodeagent.cli.read_retries import read_with_retries
from nodeagent.cli.rows import output_option, print_document, print_rows
from nodeagent.cli.second_reader import MOST_READ_TWICE, NoSecondReader, SecondReader
from nodeagent.diagnosis.checks.affinity_room import affinity_finding
from nodeagent.diagnosis.checks.answering_hosts import HostsAsked
from nodeagent.diagnosis.checks.duplicate_addresses import duplicate_findings
from nodeagent.diagnosis.checks.finding import Finding, Result, verdict_of
from nodeagent.diagnosis.checks.foreign_programs import ipsec_findings, link_program_findings, vlan_findings
from nodeagent.diagnosis.checks.hook_order import order_findings
from nodeagent.diagnosis.checks.kernel_facts import read_facts
from nodeagent.diagnosis.checks.kernel_features import refused_by_kernel
from nodeagent.diagnosis.checks.programs import closed_forwarding, program_findings, rules_outside, unread_rules
from nodeagent.diagnosis.checks.service_interface import InterfaceFact, interface_findings
from nodeagent.diagnosis.checks.settings import setting_findings
from nodeagent.diagnosis.checks.source_port_room import CrowdFact, port_findings
from nodeagent.diagnosis.checks.way_findings import WayFact, way_findings
from nodeagent.diagnosis.checks.written_program import is_program
from nodeagent.diagnosis.tables.listing import Listing, differences, own_listing, read_listing, unchanged
from nodeagent.diagnosis.trace.kernel_routes import KernelRoutes
from nodeagent.diagnosis.trace.kernel_rules import OUTSIDE, ipsec_policies, table_names
from nodeagent.diagnosis.trace.link_programs import read_link_programs
from nodeagent.diagnosis.trace.looking import read_node
from nodeagent.diagnosis.trace.routes import Leg, RouteOutcome
from nodeagent.diagnosis.trace.sampled_ways import Ways, ways_to_services
from nodeagent.diagnosis.trace.table_reading import TableReading, read_contents
from nodeagent.model.addresses import Family, Protocol, unpack_address
from nodeagent.model.text import printable
from nodeagent.proxy.dataplane.driver.belief import Contents, Ownership
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ownership import probe_ownership
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import KernelUnclear
from nodeagent.proxy.dataplane.families import families_here
from nodeagent.proxy.dataplane.image.image import interval_cidrs
from nodeagent.proxy.dataplane.interface_reading import read_carried
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.source_ports import CURE, read_port_shortages

_CONNTRACK = Path("/proc/sys/net/netfilter/nf_conntrack_max")
COLUMNS = (Column("check", "CHECK"), Column("result", "RESULT"), Column("detail", "WHAT WAS FOUND"))
_CURE = "cure"
_OLDEST_NFT = (1, 0, 6)
_NFT_SECONDS = 10.0
_INTERFACE = "nodeagent0"
_EVALUATED_NOWHERE = tuple(f"table {family} " for family in OUTSIDE)
"""The start of notes on tables that have a finding of their own."""
MOST_ASKED = 8
"""The number of ClusterIPs missing from the node for which a route is looked up."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The first part of a check. findings: on the kernel. tables: ours, as read after that: the search for features of the kernel raises
    the generation of the rules."""

    findings: Sequence[Finding]
    tables: Known


@click.command(
    "check",
    epilog=examples(
        "nodeagent check",
        "nodeagent check -o json      the verdict is the first field",
        "nodeagent check --all-nodes  every node of the cluster, worst first",
    ),
)
@click.option("--socket", "place", metavar="PATH", help="The agent's socket, if it is not at the default path.")
@output_option
@cluster_options(kubeconfig=True)
@click.pass_obj
def check_command(begun: Begun | None, output: str, place: str | None, cluster: ClusterTarget | None) -> None:
    """Check whether this kernel has what is needed, whether the rules are right, and which other programs interfere.

    Checks the kernel, nft, settings, programmed tables, the order of hooks and other programs. Each failed check names the
    consequence and the remedy. Changes nothing. Exit codes: 0 healthy, 1 not healthy or failed, 3 no permission.
    """
    if cluster is not None:
        from nodeagent.cli.all_nodes.cluster_question import exit_with_answers  # noqa: PLC0415 - loads a client

        exit_with_answers(cluster, ["check", "-o", "json"], output)
    with kernel_failures(), closing(Ruleset()) as ruleset:
        begun = begun or begin_check(ruleset)
        findings, known = [*begun.findings], begun.tables
        with HostsAsked(wanted=any(known.values())) as hosts:
            findings += table_findings(ruleset, known)
            findings += [agent_finding(None if place is None else Path(place))]
            findings += node_findings(ruleset, known, hosts)
    healthy = all(finding.result is not Result.FAILED for finding in findings)
    verdict = verdict_of(findings)
    rows = [_row(finding) for finding in findings]
    if output in ("json", "yaml"):
        print_document({"verdict": verdict, "checks": rows}, output)
    elif output == "name":
        print_rows(COLUMNS, rows, output, wide=frozenset(), name="check")
    else:
        click.echo(printable(verdict))
        print_rows(COLUMNS, rows, output, wide=frozenset(), name="check")
        for row in rows:
            if row[_CURE]:
                click.echo(printable(f"{row['check']}: {row[_CURE]}"))
    click.get_current_context().exit(0 if healthy else FAILED)


def begin_check(ruleset: Ruleset) -> Begun:
    """Does the first part of a check. Raises DataplaneError."""
    findings = (*kernel_findings(ruleset),)
    return Begun(findings, {family: read_contents(ruleset, family) for family in Family})


def _row(finding: Finding) -> dict[str, object]:
    return {"check": finding.check, "result": finding.result.value, "detail": finding.detail, _CURE: finding.cure}


def node_findings(ruleset: Ruleset, known: Known, hosts: HostsAsked) -> Iterator[Finding]:
    """Yields findings on settings, the order of hooks, and other programs. known: our tables."""
    tables = {family: found for family, found in known.items() if found is not None}
    pods = tuple(cidr for found in tables.values() for cidr in _pod_cidrs(found))
    facts = read_facts(ruleset, pods, programmed=frozenset(tables))
    yield from setting_findings(facts)
    yield from order_findings(facts)
    yield from program_findings(facts)
    yield from closed_forwarding(facts)
    yield from rules_outside(f"{family} {name}" for family, name in table_names(ruleset) if family in OUTSIDE)
    yield from link_program_findings(read_link_programs())
    yield from ipsec_findings(list(ipsec_policies()))
    with KernelRoutes() as routes:
        yield from vlan_findings(routes.barred_ports())
    for family, found in tables.items():
        sets = found.contents.sets
        count = sets[schema.AFFINITY].count if schema.AFFINITY in sets else None
        if count is not None:
            yield affinity_finding(family.value, count, schema.AFFINITY_SIZE)
    yield from interface_findings(_interface_fact([found.contents for found in tables.values()]))
    yield from port_findings(tuple(port_shortage_facts()))
    followed = [read_with_retries(partial(_ways, ruleset, family, table)) for family, table in known.items()]
    yield from duplicate_findings(hosts.answers(pods))
    yield from way_findings(tuple(fact for facts, _ in followed for fact in facts))
    yield from unread_rules(note for _, notes in followed for note in notes)


def _has_interface() -> bool:
    return any(name == _INTERFACE for _, name in socket.if_nameindex())


def _is_carried(family: Family) -> bool:
    """Returns whether the service interface carries addresses or routes of a family, except link-local ones."""
    carried = (one.partition("/")[0] for one in read_carried(_INTERFACE, family))
    return not all(ip_address(one).is_link_local for one in carried)


def _interface_fact(tables: list[Contents]) -> InterfaceFact:
    """Returns which of the programmed ClusterIPs are neither addresses of this node nor covered by a local route."""
    programmed = sorted(unpack_address(key) for table in tables for key in table.image.get(schema.CLUSTER_IPS, ()))
    with KernelRoutes() as routes:
        local = routes.local_addresses()
        ranges = [ip_network(one) for one in read_carried(_INTERFACE, Family.IPV6) if "/" in one]
        elsewhere = [address for address in programmed if address not in local]
        missing = tuple(address for address in elsewhere if not any(ip_address(address) in one for one in ranges))
        lost = any(routes.route(Leg(address)).way is not RouteOutcome.OUT for address in missing[:MOST_ASKED])
    ranged = len(elsewhere) - len(missing)
    return InterfaceFact(_INTERFACE, _has_interface(), len(programmed), missing, lost, ranged)


def port_shortage_facts() -> Iterator[CrowdFact]:
    """Yields a fact for each endpoint for which this node is short of source ports."""
    for family in Family:
        for protocol in (Protocol.TCP, Protocol.UDP):
            for crowd in read_port_shortages(family, protocol):
                yield CrowdFact(f"{crowd}: {crowd.follows}", CURE.format(crowd.endpoint[0]))


def _ways(ruleset: Ruleset, family: Family, known: TableReading | None) -> tuple[list[WayFact], tuple[str, ...]]:
    """Follows connections to some Services; returns the results, and notes on rules that were not evaluated. Raises
    KernelUnclear if the rules changed meanwhile."""
    found = read_contents(ruleset, family, known=known)
    if found is None or not found.contents.fits(found.specs, family):
        return [], ()
    with KernelRoutes() as routes:
        node, notes = read_node(ruleset, family, read_others, routes.addresses_at_interfaces(), found)
        ways = ways_to_services(node, routes)
    unclear = [one.unclear for one in ways if one.unclear]
    return [_way_fact(family, one) for one in ways], tuple(
        one for one in (*unclear, *notes) if not one.startswith(_EVALUATED_NOWHERE)
    )


def _way_fact(family: Family, ways: Ways) -> WayFact:
    hole, hole_cure = ("", "") if ways.hole is None else (str(ways.hole), ways.hole.cure)
    if not ways.stopped:
        return WayFact(family.value, ways.client, ways.asked, hole=hole, hole_cure=hole_cure, left_out=ways.left_out)
    first = min(ways.stopped, key=lambda one: not ways.is_fault(one))
    return WayFact(
        family.value,
        ways.client,
        ways.asked,
        len(ways.stopped),
        str(first.question),
        first.reason.why,
        first.reason.cure,
        ways.is_fault(first),
        hole,
        hole_cure,
        "" if first.share == 1 else str(first.share),
        ways.left_out,
    )


def _pod_cidrs(found: TableReading) -> Iterator[str]:
    if schema.POD_CIDRS in found.contents.image and schema.POD_CIDRS in found.specs:
        yield from interval_cidrs(found.contents.image[schema.POD_CIDRS])


def nft_finding() -> Finding:
    """Returns a finding on the installed nft. The agent does not need it, but users do."""
    try:
        told = subprocess.run(["nft", "--version"], capture_output=True, text=True, timeout=_NFT_SECONDS, check=False)  # noqa: S607
    except (OSError, subprocess.TimeoutExpired):
        return Finding(
            "nft", Result.NOTE, "there is no nft here: what is programmed can only be read with nodeagent show"
        )
    found = re.search(r"v(\d+)\.(\d+)\.(\d+)", told.stdout)
    if found is None:
        return Finding("nft", Result.NOTE, "nft does not say its version")
    version = tuple(map(int, found.groups()))
    text = ".".join(found.groups())
    if version < _OLDEST_NFT:
        detail = f"{text}: never tried with these tables; it may not list them, or crash"
        return Finding("nft", Result.NOTE, detail, "install nft 1.0.6 or later")
    if version == _OLDEST_NFT:
        return Finding("nft", Result.OK, f"{text}: lists the tables; cannot load saved IPv6 tables with affinity")
    return Finding("nft", Result.OK, f"{text}: lists and loads the tables")


def kernel_findings(ruleset: Ruleset) -> Iterator[Finding]:
    """Yields findings on the kernel and its features. Raises NotPermitted."""
    system = os.uname()
    yield Finding("kernel", Result.OK, f"{system.sysname} {system.release} ({system.machine})")
    able = families_here()
    for family in Family:
        check = f"{family.value} rules"
        if family not in able:
            yield Finding(check, Result.NOTE, f"{family.value} is off on this machine")
        elif KernelTable(ruleset, family, {}).header() is not None:
            yield Finding(check, Result.OK, "a table is in force, see below")
        elif refused := refused_by_kernel(ruleset, family):
            yield Finding(check, Result.FAILED, f"the kernel does not take {'; '.join(refused[:3])}")
        elif lacking := refused_by_kernel(ruleset, family, names=True):
            yield Finding(check, Result.NOTE, f"enough without dns.enabled, which needs {'; '.join(lacking[:3])}")
        else:
            yield Finding(check, Result.OK, "the kernel takes every set, chain and rule")
    if probe_ownership(ruleset) is Ownership.OWNED:
        yield Finding("owned tables", Result.OK, "the kernel has them")
    else:
        yield Finding("owned tables", Result.NOTE, "the kernel has none (Linux 6.9): others can flush the table")
    if _CONNTRACK.exists():
        yield Finding("connection tracking", Result.OK, "the kernel has it")
    else:
        cure = "modprobe nf_conntrack"
        yield Finding("connection tracking", Result.FAILED, f"{_CONNTRACK} is missing: nothing can be translated", cure)
    yield nft_finding()


def table_findings(ruleset: Ruleset, known: Known) -> Iterator[Finding]:
    """Yields findings on our tables, and on whether libnftables reads the same. known: our tables."""
    try:
        reader = SecondReader()
    except NoSecondReader as error:
        yield Finding("second reader", Result.NOTE, f"tables are not compared: {error}")
        reader = None
    for family, table in known.items():
        yield read_with_retries(partial(_table_finding, ruleset, family, reader, table))


def _table_finding(
    ruleset: Ruleset, family: Family, reader: SecondReader | None, known: TableReading | None
) -> Finding:
    """Returns the finding on a family's table. Raises KernelUnclear if the rules changed while both readers read."""
    check = f"{family.value} table"
    found = read_contents(ruleset, family, known=known)
    if found is None:
        return _absent(check, family)
    if not found.contents.fits(found.specs, family):
        detail = "it is not as this version makes it; an agent that starts replaces it"
        return Finding(check, Result.FAILED, detail, "restart the agent")
    if not is_program(found.contents, family):
        if ruleset.generation() != found.generation:
            raise KernelUnclear("the rules change all the time: they could not be read")
        detail = "its chains or rules are not those that the agent writes: somebody changed them"
        return Finding(check, Result.FAILED, detail, "restart the agent, and see who writes into its table")
    return _read_twice(ruleset, family, found, reader)


def _absent(check: str, family: Family) -> Finding:
    if not _is_carried(family):
        return Finding(check, Result.NOTE, "nothing is programmed")
    detail = "it is gone, and nodeagent0 still has the ClusterIPs: somebody removed it (nft flush ruleset, perhaps)"
    return Finding(check, Result.FAILED, detail, "start the agent, or see why it is not running")


def _own_now(ruleset: Ruleset, family: Family) -> Listing:
    found = read_contents(ruleset, family)
    if found is None:
        raise KernelUnclear("the table went while it was read")
    return own_listing(found.contents, found.specs)


def _read_twice(ruleset: Ruleset, family: Family, found: TableReading, reader: SecondReader | None) -> Finding:
    """Compares our reading of a table with that of libnftables."""
    check = f"{family.value} table"
    own = own_listing(found.contents, found.specs)
    told = f"{len(own)} sets, {sum(map(len, own.values()))} elements, {len(found.contents.hooks)} chains"
    if reader is None:
        return Finding(check, Result.OK, told)
    big = {name: len(elements) for name, elements in own.items() if len(elements) > MOST_READ_TWICE}
    specs = {name: spec for name, spec in found.specs.items() if name not in big}
    own = {name: own[name] for name in specs}
    try:
        other = read_listing(reader.sets_and_maps(family, specs), specs)
        changed = ruleset.generation() != found.generation
        if changed:  # endpoints changed meanwhile: compare only the elements that stayed the same
            later = _own_now(ruleset, family)
            own, other = unchanged(own, other, {name: later.get(name, {}) for name in specs})
        wrong = differences(own, other)
    except (OSError, ValueError) as error:
        changed, wrong = ruleset.generation() != found.generation, [str(error)]
    if wrong and changed:
        raise KernelUnclear("the rules change all the time: they could not be read twice alike")
    if wrong:
        return Finding(check, Result.FAILED, f"nft reads something else: {'; '.join(wrong)}")
    counted = ", ".join(f"{name} ({count})" for name, count in big.items())
    left_out = f", except {counted}, too many to ask it" if big else ""
    return Finding(check, Result.OK, f"{told}: nft reads the same{left_out}")
