"""A command of `nodeagent` as a fork whose kernel is busy."""

from nodeagent.lab.net import warm_launcher
from tests.harness.effort import AT_LENGTH
from tests.harness.kernel_faults import PROPORTION, KernelFaults

ENTRY = f"{__name__}:carry_out"
OF_SCENES = PROPORTION if AT_LENGTH else PROPORTION / 5
"""The proportion of requests that fail. At one in ten some scenes also show what is no fault of the program, once in several runs of all."""


def carry_out(seed: str, *descriptors: int) -> None:
    """Becomes the command; never returns. Commits are answered: else an agent that is ready may have one family to program yet."""
    with KernelFaults(int(seed), OF_SCENES, commits_are_answered=True).opened():
        warm_launcher.carry_out(*descriptors)
