"""Problems of an object (data to show, count and log on change), and temporary failures (exceptions)."""

from msgspec import Struct


class Problem(Struct, frozen=True, order=True):
    """One reason why an object, or a part of it, is not in effect.

    subject: ``Service default/web``, ``EndpointSlice default/web-x``, ``file svc.yaml:12``, …
    reason: CamelCase, stable, countable (``AddressConflict``, ``InvalidAddress``, ``Undecodable``, …).
    detail: one line for users: what, where, the consequence.
    """

    subject: str
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}: {self.detail}"


class Unusable(Exception):
    """Something will not work until a person acts (permissions, kernel); the text is one line that says what to do."""


class Retryable(Exception):
    """A temporary failure that is worth a retry; the text is one line for users."""


class Interrupted(Retryable):
    """Other programs interrupted the work. Worth a retry however often it happens, because neither we nor the kernel failed."""
