"""Finds the cause of what the kernel refused (pure)."""

import errno
from collections.abc import Callable, Iterable

from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.errors import Rejection, Unsupported

_UNSUPPORTED = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL, errno.EAFNOSUPPORT})


def raise_if_unsupported(rejections: Iterable[Rejection], family: Family) -> None:
    """Raises Unsupported if a rule, set or chain was refused: these are the same on every machine, so the kernel lacks something."""
    for item in rejections:
        if not item.set and item.errno in _UNSUPPORTED and item.about.startswith(("rule", "set", "chain")):
            raise Unsupported(f"this kernel cannot do what {item.about} of table {family.value} needs: {item.reason}")


def problems_of(
    rejections: Iterable[Rejection], owner_of: Callable[[str, bytes], ObjectKey | None]
) -> dict[ObjectKey, Problem]:
    """Returns a Problem for each service of the refused elements, as far as the services are known."""
    owners: dict[ObjectKey, Problem] = {}
    for item in rejections:
        owner = None if item.key is None else owner_of(item.set, item.key)
        if owner is not None:
            detail = f"the kernel refused an element of {item.set}: {item.reason}; the service is left out"
            owners[owner] = Problem(f"Service {owner}", "RejectedByKernel", detail)
    return owners
