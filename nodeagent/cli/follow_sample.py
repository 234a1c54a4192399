"""Follows connections to the Services that its arguments name, and prints a `FollowedSample`: the agent runs it as a process of its own."""

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

import msgspec

from nodeagent.cli.other_tables import read_others
from nodeagent.cli.read_retries import read_with_retries
from nodeagent.diagnosis.trace.journey import Node
from nodeagent.diagnosis.trace.kernel_routes import KernelRoutes
from nodeagent.diagnosis.trace.looking import read_node
from nodeagent.diagnosis.trace.rule_faults import RuleFault, find_rule_faults
from nodeagent.diagnosis.trace.sampled_ways import sample_places
from nodeagent.diagnosis.trace.table_reading import read_contents
from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.model.problem_subjects import LONG_PACKETS, OTHER_RULES
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import DataplaneError
from nodeagent.proxy.dataplane.followed_sample import LOST, STOPPED, FollowedSample


def main() -> None:
    """Prints the result; exits with a message if the kernel cannot be read."""
    try:
        with KernelRoutes() as routes:
            here = routes.addresses_at_interfaces()
            found = [_follow(family, sys.argv[1:], here, routes) for family in Family]
    except (DataplaneError, OSError) as error:
        sys.exit(str(error))
    used = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    unread = next((note for _, notes in found for note in notes), "")
    problems = tuple(one for of_family, _ in found for one in of_family)
    done = FollowedSample(problems, sum(one.ru_utime + one.ru_stime for one in used), unread)
    sys.stdout.write(msgspec.json.encode(done).decode())


def _follow(
    family: Family, services: Sequence[str], here: Mapping[str, frozenset[str]], routes: KernelRoutes
) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """Returns the problems of a family, and notes on what was not followed. Raises DataplaneError, OSError."""
    node, notes = read_with_retries(partial(_read_rules, family, services, here))
    places = [] if node.own is None else list(sample_places(node.own, services))
    return tuple(_problems(family, find_rule_faults(places, node, routes))), notes


def _read_rules(
    family: Family, services: Sequence[str], here: Mapping[str, frozenset[str]]
) -> tuple[Node, tuple[str, ...]]:
    """Returns the node, without our table if that is not as this version makes it.

    Services may change meanwhile: commits do not wait for this process. An endpoint that has left meanwhile may seem to lose connections, but
    not by a rule of another program.
    """
    with closing(Ruleset()) as ruleset:
        known = read_contents(ruleset, family, services)
        if known is None or not known.contents.fits(known.specs, family):
            return Node(None), ()
        return read_node(ruleset, family, read_others, here, known, settled=False)


def _problems(family: Family, faults: Sequence[RuleFault]) -> Iterator[Problem]:
    for one in faults:
        cure = f"; {one.cure}" if one.cure else ""
        if one.long_only:
            yield Problem(LONG_PACKETS, LOST, f"from {one.client}: {one.why}{cure}")
        else:
            what = f"{family.value} connections of {one.client} to Services fail"
            yield Problem(OTHER_RULES, STOPPED, f"{what}: {one.why}{cure}")


if __name__ == "__main__":
    main()
