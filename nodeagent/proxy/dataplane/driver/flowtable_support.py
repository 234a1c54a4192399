"""Finds out whether this kernel can offload connections to a flowtable."""

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, repeated
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import CommitRejected
from nodeagent.proxy.dataplane.program.chain import Chain, Program
from nodeagent.wire.netlink.nf_tables.expressions import FlowOffload

SUBJECT = "configuration dataplane.flowtable"
UNSUPPORTED = "NoFlowtables"
_PROBE_TABLE = "nodeagent-probe"
_PROBE = "probe"


def flowtable_problem(socket: Ruleset, family: Family) -> Problem | None:
    """Returns why established connections of this family cannot be offloaded; None if they can. Leaves nothing behind.

    Writes nothing if our table has a flowtable already. Raises NotPermitted.
    """
    if KernelTable(socket, family, {}).flowtables():
        return None
    program = Program(family, (Chain(_PROBE, ((FlowOffload(_PROBE),),)),), {}, _PROBE)
    transaction = Transaction(family, {}, _PROBE_TABLE)
    transaction.claim_table(owned=False)
    transaction.write_program(program)
    transaction.delete_table()
    try:
        repeated(lambda: socket.commit(transaction))
    except CommitRejected as error:
        refused = error.rejections[0]
        return Problem(
            SUBJECT,
            UNSUPPORTED,
            f"this kernel refuses a {family.value} {refused.about} ({refused.reason}): established connections pass all chains, "
            "as without the option; try modprobe nf_flow_table_inet nft_flow_offload, or set it to false",
        )
    return None
