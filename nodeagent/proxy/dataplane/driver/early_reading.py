"""Reads the tables while an agent that starts still waits for the first lists: the kernel looks for elements while lists are decoded.

The thread that reads gives its turn up at each request to the kernel, a thousand times. With long turns of the one that decodes lists
(`runtime/thread_turns.py`) most of the reading would be done only after that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Retryable, Unusable
from nodeagent.proxy.dataplane.driver.belief import Contents
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.program.chain import ProgramOptions


@dataclass(frozen=True, slots=True)
class EarlyReading:
    """A table, and the generation of the ruleset before it was read: the table is the same as long as only we change the ruleset.

    contents: None if the kernel had no table."""

    contents: Contents | None
    generation: int


def read_early(socket: Ruleset, options: Mapping[Family, ProgramOptions]) -> dict[Family, EarlyReading]:
    """Returns the table of each family. One that the kernel does not let us read now is left out: the first pass reads it, and reports
    the error. Blocking."""
    found: dict[Family, EarlyReading] = {}
    for family, constant in options.items():
        try:
            generation = socket.generation()
            found[family] = EarlyReading(KernelTable(socket, family, constant.specs()).read(), generation)
        except (Retryable, Unusable):
            continue
    return found
