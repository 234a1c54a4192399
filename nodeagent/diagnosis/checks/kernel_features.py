"""Checks whether this kernel accepts what the agent programs."""

from dataclasses import replace

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, repeated
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import CommitRejected
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass
from nodeagent.proxy.dataplane.program.program import build_program

_EVERY_KIND = tuple(
    PickClass(2, cluster_scope, node_port, sticky)
    for cluster_scope in (False, True)
    for node_port in (False, True)
    for sticky in (False, True)
)
_SOME_TIMEOUT_SECONDS = 60
_OPTIONS = ProgramOptions(PodDetection.CIDR, masquerade_all=False, counters=True)


def refused_by_kernel(ruleset: Ruleset, family: Family, *, names: bool = False) -> tuple[str, ...]:
    """Returns the sets, chains and rules that the kernel rejects, one line each; empty if it accepts all.
    names: include the rules of a node that answers DNS.

    There must be no table of ours. One with a chain of every kind is created and deleted in the same transaction, so no
    packet ever meets it. Raises NotPermitted.
    """
    transaction = Transaction(family, {spec.name: spec for spec in schema.set_specs(counters=_OPTIONS.counters)})
    transaction.claim_table(owned=False)
    transaction.create_sets()
    transaction.write_program(
        build_program(family, replace(_OPTIONS, names=names), _EVERY_KIND, (_SOME_TIMEOUT_SECONDS,))
    )
    transaction.delete_table()
    try:
        repeated(lambda: ruleset.commit(transaction))
    except CommitRejected as error:
        return tuple(f"{rejection.about}: {rejection.reason}" for rejection in error.rejections)
    return ()
