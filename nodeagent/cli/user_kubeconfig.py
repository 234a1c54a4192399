"""The kubeconfig of the user who runs a command, as kubectl finds it."""

import os
from pathlib import Path

USER_CONFIG = Path("~/.kube/config")


def kubeconfig_paths(given: Path | None) -> tuple[Path, ...]:
    """Returns `given`, else the files in $KUBECONFIG, which are merged, else ~/.kube/config."""
    named = [Path(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    return (given,) if given else tuple(named) or (USER_CONFIG.expanduser(),)
