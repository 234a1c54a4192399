"""Renders a kubeconfig for a user of this server."""

import base64

import yaml


def render(server: str, *, authority: bytes | None, token: str, name: str = "admin") -> str:
    """Returns a kubeconfig for `server` (a URL) that trusts `authority` (PEM). `token`: empty if no credentials are needed."""
    cluster: dict[str, object] = {"server": server}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    user: dict[str, object] = {"token": token} if token else {}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "nodeagent", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "nodeagent", "context": {"cluster": "nodeagent", "user": name}}],
        "current-context": "nodeagent",
    }
    return str(yaml.safe_dump(document, sort_keys=False))
