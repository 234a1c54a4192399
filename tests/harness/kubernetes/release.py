"""The programs of a release of Kubernetes, as `KUBERNETES=DIR` names them, and those of this machine that nodes run."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nodeagent.lab.net.network_namespaces import LabError

ROOT = Path(__file__).parents[3]
PLACES = ("", "bin", "server/bin", "test/bin", "kubernetes/server/bin", "kubernetes/test/bin")
"""Where below DIR programs are: beside each other, or as the archives of a release unpack."""
TOOLS = {"etcd": ROOT / ".tools" / "etcd-3.4" / "etcd", "kubectl": ROOT / ".tools" / "kubectl-1.32" / "kubectl"}
"""Debian's, where the directory has none: the archives of a release have no etcd, and not all of them have kubectl."""
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
MACHINE = {"containerd": "containerd", "ctr": "containerd", "runc": "runc"}
"""Programs of this machine, and the Debian packages they are in."""
PLUGINS = Path("/usr/lib/cni")


@dataclass(frozen=True, slots=True)
class Release:
    """A directory of programs; `find` says where one is."""

    directory: Path

    @classmethod
    def of_environment(cls) -> Self:
        """The one that KUBERNETES names. Raises LabError."""
        named = os.environ.get("KUBERNETES")
        if not named:
            raise LabError("KUBERNETES is not set: name the directory with the programs of a Kubernetes release")
        return cls(Path(named).resolve())

    def find(self, program: str) -> Path:
        """Raises LabError that names the program."""
        places = [self.directory / place / program for place in PLACES]
        places += [TOOLS[program]] if program in TOOLS else []
        for place in places:
            if os.access(place, os.X_OK) and place.is_file():
                return place
        raise LabError(f"no {program} in {self.directory}: KUBERNETES must name the programs of a Kubernetes release")

    def check(self, *programs: str) -> None:
        """Raise LabError for the first program that a cluster needs and that is missing; `programs`: more of the release."""
        for program in (*CONTROL_PLANE, "kubelet", "kubectl", *programs):
            self.find(program)
        for program, package in MACHINE.items():
            if shutil.which(program) is None:
                raise LabError(f"no {program} on this machine: install the package {package}")
        if not (PLUGINS / "bridge").exists():
            raise LabError(f"no {PLUGINS / 'bridge'} on this machine: install the package containernetworking-plugins")
