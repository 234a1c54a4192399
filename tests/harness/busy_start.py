"""A command of `nodeagent` as a fork whose kernel is busy."""

from nodeagent.lab.net import warm_launcher
from tests.harness.kernel_faults import KernelFaults

ENTRY = f"{__name__}:carry_out"


def carry_out(seed: str, *descriptors: int) -> None:
    """Becomes the command; never returns. Commits are answered: else an agent that is ready may have one family to program yet."""
    with KernelFaults(int(seed), commits_are_answered=True).opened():
        warm_launcher.carry_out(*descriptors)
