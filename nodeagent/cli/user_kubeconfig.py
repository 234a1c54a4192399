"""The kubeconfig of the user who runs a command, as kubectl finds it."""

import os
from pathlib import Path

USER_CONFIG = Path("~/.kube/config")


def kubeconfig_path(given: Path | None) -> Path:
    """Returns `given`, else the first file in $KUBECONFIG, else ~/.kube/config."""
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    first = next((one for one in named if one), "")
    return given or (Path(first) if first else USER_CONFIG.expanduser())
