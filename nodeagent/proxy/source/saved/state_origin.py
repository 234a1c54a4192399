"""Decides whether this agent may use a saved state now. Pure."""

from datetime import datetime, timedelta

from msgspec import Struct


class StateOrigin(Struct, frozen=True):
    """Identifies the state's cluster, node and kind.

    cluster: a digest of the API servers' addresses and of their certificate authority.
    node: the name of the node.
    for_names: whether the state has what only cluster DNS needs (headless Services and their slices).
    """

    cluster: str
    node: str
    for_names: bool


class StateUnusable(Exception):
    """A saved state that must not be used. The text says why; it is shown after "the saved state in FILE"."""


def check(found: StateOrigin, saved: datetime, wanted: StateOrigin, now: datetime, longest: timedelta) -> None:
    """Raises StateUnusable if the state is not of this cluster and node, lacks the names that are wanted, or is older than `longest`.

    A state from the future is used: the clock of a machine that has just booted may be behind.
    """
    if found.cluster != wanted.cluster:
        raise StateUnusable("is of another cluster: its API server has another address or certificate authority")
    if found.node != wanted.node:
        raise StateUnusable(f"is of node {found.node}, and this is {wanted.node}")
    if wanted.for_names and not found.for_names:
        raise StateUnusable("was saved while cluster DNS was off, and has no headless Services")
    if now - saved > longest:
        raise StateUnusable(f"is of {moment(saved)}, older than source.snapshotMaxAge allows")


def moment(when: datetime) -> str:
    """Returns the time as people read it, to the second."""
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"
