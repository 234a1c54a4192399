"""`nodeagent check`: can this kernel do the work, and is what is programmed read alike by two readers?"""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

import click

from nodeagent.cli.columns import Column
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.cli.second_reader import NoSecondReader, SecondReader
from nodeagent.cli.show import patiently, print_table
from nodeagent.dataplane.errors import DataplaneError, KernelUnclear, NotPermitted
from nodeagent.dataplane.families import families_here
from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.belief import Contents, Ownership
from nodeagent.dataplane.nft.kernel_features import refused_by_kernel
from nodeagent.dataplane.nft.kernel_table import KernelTable
from nodeagent.dataplane.nft.listing import differences, own_listing, read_listing
from nodeagent.dataplane.nft.ownership import probe_ownership
from nodeagent.dataplane.nft.ruleset import Ruleset
from nodeagent.dataplane.nft.schema import SetSpec
from nodeagent.model.addresses import Family

_CONNTRACK = Path("/proc/sys/net/netfilter/nf_conntrack_max")
COLUMNS = (Column("check", "CHECK"), Column("result", "RESULT"), Column("detail", "WHAT WAS FOUND"))


class Result(StrEnum):
    """How a check ended; a note is something to know that is not wrong."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. detail: one line for a person."""

    check: str
    result: Result
    detail: str


@click.command("check")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def check_command(output: str) -> None:
    """Look whether this kernel takes the agent's rules, and whether nft reads what is programmed as we do.

    Changes nothing. Exit codes: 0 healthy, 1 not healthy or failed, 3 no permission.
    """
    try:
        with closing(Ruleset()) as ruleset:
            findings = [*kernel_findings(ruleset), *table_findings(ruleset)]
    except NotPermitted as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except (DataplaneError, OSError) as error:
        raise Failure(str(error), FAILED) from error
    healthy = all(finding.result is not Result.FAILED for finding in findings)
    verdict = "healthy" if healthy else "not healthy"
    rows = [asdict(finding) for finding in findings]
    if output == "json":
        click.echo(json.dumps({"verdict": verdict, "checks": rows}, indent=2))
    else:
        click.echo(verdict)
        print_table(COLUMNS, rows)
    click.get_current_context().exit(0 if healthy else FAILED)


def kernel_findings(ruleset: Ruleset) -> Iterator[Finding]:
    """What the kernel is and can do. Raises NotPermitted."""
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
        yield Finding("connection tracking", Result.FAILED, f"{_CONNTRACK} is missing: load the module nf_conntrack")


def table_findings(ruleset: Ruleset) -> Iterator[Finding]:
    """What is programmed, and whether libnftables says the same of it."""
    try:
        reader = SecondReader()
    except NoSecondReader as error:
        yield Finding("second reader", Result.NOTE, f"tables are not compared: {error}")
        reader = None
    for family in Family:
        yield patiently(partial(_table_finding, ruleset, family, reader))


def _table_finding(ruleset: Ruleset, family: Family, reader: SecondReader | None) -> Finding:
    """Raises KernelUnclear when the rules changed while both read."""
    check = f"{family.value} table"
    before = ruleset.generation()
    found = _read(ruleset, family)
    if found is None:
        return Finding(check, Result.NOTE, "nothing is programmed")
    contents, specs = found
    if not contents.fits(specs, family):
        return Finding(check, Result.FAILED, "it is not as this version makes it; an agent that starts replaces it")
    own = own_listing(contents, specs)
    told = f"{len(own)} sets, {sum(map(len, own.values()))} elements, {len(contents.hooks)} chains"
    if reader is None:
        return Finding(check, Result.OK, told)
    try:
        wrong = differences(own, read_listing(reader.sets_and_maps(family), specs))
    except (OSError, ValueError) as error:
        wrong = [str(error)]
    if ruleset.generation() != before:
        raise KernelUnclear("the rules change all the time: they could not be read twice alike")
    if wrong:
        return Finding(check, Result.FAILED, f"nft reads something else: {'; '.join(wrong)}")
    return Finding(check, Result.OK, f"{told}: nft reads the same")


def _read(ruleset: Ruleset, family: Family) -> tuple[Contents, dict[str, SetSpec]] | None:
    """The table and the shape it has, one with counters or one without; None when there is none."""
    contents, specs = None, dict[str, SetSpec]()
    for counters in (False, True):
        specs = {spec.name: spec for spec in schema.set_specs(counters=counters)}
        contents = KernelTable(ruleset, family, specs).read()
        if contents is None:
            return None
        if contents.fits(specs, family):
            break
    return None if contents is None else (contents, specs)
