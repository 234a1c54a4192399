"""The manifests of our agents: those of deploy/, which the package contains, for clusters made by kubeadm."""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nodeagent.cli.migration
from nodeagent.cli.migration.found import AGENT, NAMESPACE, Document
from nodeagent.cli.migration.kubectl import Kubectl

CLEANING_LABEL = "nodeagent.io/cleaning"


def deploy_directory() -> Path:
    """Returns the directory in the package, or in the source tree."""
    own = Path(nodeagent.cli.migration.__file__).parent / "deploy"
    return own if own.is_dir() else own.parents[3] / "deploy"


def agents(
    kubectl: Kubectl, *, canary: bool, image: str | None, components: Sequence[str], kustomization: Path | None
) -> str:
    """Returns the manifests to apply. canary: only for nodes with the label. image: None for this version's.
    kustomization: a directory of the user instead of deploy/base with the component kubeadm."""
    with tempfile.TemporaryDirectory(prefix="nodeagent-takeover-") as made:
        top = Path(made)
        shutil.copytree(deploy_directory(), top / "deploy", ignore=shutil.ignore_patterns("image"))
        wanted = [*components, *(["canary"] if canary else [])]
        document: Document = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
        if kustomization is None:
            document["resources"] = ["deploy/base"]
            wanted = ["kubeadm", *wanted]
        else:
            document["resources"] = [os.path.relpath(kustomization.resolve(), top.resolve())]
        document["components"] = [f"deploy/components/{one}" for one in wanted]
        if image is not None:
            name, tag = split_image(image)
            document["images"] = [{"name": AGENT, "newName": name, **({"newTag": tag} if tag else {})}]
        (top / "kustomization.yaml").write_text(json.dumps(document))
        return kubectl.kustomize(top)


def split_image(image: str) -> tuple[str, str]:
    """Returns name and tag: a colon in the last part of the name begins the tag."""
    head, slash, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{head}{slash}{name}", tag


def known_components() -> tuple[str, ...]:
    """Returns the values of `--component`; the command itself selects kubeadm and canary."""
    found = (path.name for path in (deploy_directory() / "components").iterdir() if path.is_dir())
    return tuple(sorted(set(found) - {"kubeadm", "canary"}))


def cleaning_pod(node: str, image: str) -> Document:
    """Returns a pod that removes everything of ours from one node, and ends. It names its node: no scheduler is needed."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "nodeagent-cleanup-",
            "namespace": NAMESPACE,
            "labels": {CLEANING_LABEL: ""},
        },
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "cleanup",
                    "image": image,
                    "args": ["cleanup"],
                    "securityContext": {
                        "runAsUser": 0,
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
                    },
                }
            ],
        },
    }
