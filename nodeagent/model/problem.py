"""What is wrong: with an object (data to show, count and log on change), or for the moment (an exception)."""

from msgspec import Struct


class Problem(Struct, frozen=True, order=True):
    """One reason why (a part of) an object is not in effect.

    subject: ``Service default/web``, ``EndpointSlice default/web-x``, ``file svc.yaml:12``, …
    reason: CamelCase, stable, countable (``AddressConflict``, ``InvalidAddress``, ``Undecodable``, …).
    detail: one line for a person: what, where, what follows.
    """

    subject: str
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}: {self.detail}"


class Unusable(Exception):
    """Something will not work until a person acts (permissions, kernel); the text is one line saying what."""


class Retryable(Exception):
    """Something failed for now and is worth repeating; the text is one line for a person."""


class Interrupted(Retryable):
    """Others got in between; worth repeating however often it happens, for it says nothing about us or the kernel."""
