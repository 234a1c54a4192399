"""What goes with a verdict that all is well: what is wrong with the node, and what was not looked at (pure)."""

from collections.abc import Iterable

from nodeagent.model.problem import Problem
from nodeagent.model.problem_subjects import OF_EVERY_SERVICE, OF_THE_AGENT, OF_THE_NODE


def reservations(problems: Iterable[Problem], unseen: Iterable[str], *, of_all: bool = False) -> str:
    """Returns the end of a first line, from a semicolon on; empty if nothing qualifies it. problems: all of the
    agent's. of_all: it is about all Services, of whose endpoints not every one was tried."""
    subjects = (*OF_THE_NODE, *OF_THE_AGENT) if of_all else OF_EVERY_SERVICE
    of_node = next((one.subject for one in problems if one.subject.startswith(subjects)), "")
    node = f"; this node has a problem, {of_node}: nodeagent problems" if of_node else ""
    first = next(iter(unseen), "")
    return node + (f"; as far as is known: {first}" if first else "")
