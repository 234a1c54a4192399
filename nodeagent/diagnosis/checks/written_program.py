"""Checks whether the chains and rules of our table are what the agent writes with some configuration (pure)."""

import itertools
from collections.abc import Iterator

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import Belief, Contents, program_matches
from nodeagent.proxy.dataplane.image.image import class_of, interval_cidrs
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import pick_class
from nodeagent.proxy.dataplane.program.offloading import FORWARD_CHAIN
from nodeagent.proxy.dataplane.program.program import verdict_elements
from nodeagent.wire.netlink.nf_tables.expressions import Cmp, Expression, Meta, MetaKey
from nodeagent.wire.netlink.nf_tables.rule_reading import read_rule_expressions


def is_program(contents: Contents, family: Family) -> bool:
    """Returns whether these are the rules for any kind of pod detection, with or without masqueradeAll, names and a flowtable."""
    classes = {pick for key in contents.verdicts[schema.DISPATCH] if (pick := pick_class(class_of(key))) is not None}
    timeouts = {class_of(key) for key in contents.verdicts[schema.LEARN]}
    belief = Belief(contents.image, classes=classes, timeouts=timeouts)
    if contents.verdicts != verdict_elements(classes, timeouts):
        return False
    return any(program_matches(contents, family, options, belief) for options in _possible_options(contents))


def _possible_options(contents: Contents) -> Iterator[ProgramOptions]:
    by_interface = itertools.product(
        (PodDetection.INTERFACE, PodDetection.INTERFACE_PREFIX), sorted(set(_interfaces(contents)))
    )
    ranges = ("", *interval_cidrs(contents.image.get(schema.POD_CIDRS, ())))
    pods = (
        *((PodDetection.CIDR, "", pod_range) for pod_range in ranges),
        *((detection, name, "") for detection, name in ((PodDetection.NONE, ""), *by_interface)),
    )
    for (detection, name, pod_range), masquerade_all, names in itertools.product(pods, (False, True), (False, True)):
        yield ProgramOptions(
            detection, name, masquerade_all, names=names, pod_range=pod_range, flowtable=FORWARD_CHAIN in contents.hooks
        )


def _interfaces(contents: Contents) -> Iterator[str]:
    """Yields the names with which rules compare the input interface."""
    for rules in contents.rules.values():
        for rule in rules:
            parts: tuple[Expression, ...] = read_rule_expressions(rule, {})
            for one, following in itertools.pairwise(parts):
                if isinstance(one, Meta) and one.key is MetaKey.IIFNAME and isinstance(following, Cmp):
                    yield following.data.rstrip(b"\0").decode(errors="replace")
