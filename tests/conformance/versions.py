"""What ran: the versions of Kubernetes, the container runtime, the kernel and nft on this machine."""

import platform
import subprocess

from tests.harness.kubernetes.release import Release


def versions(release: Release) -> str:
    """In one line."""
    programs = ([str(release.find("kubelet")), "--version"], ["containerd", "--version"], ["nft", "--version"])
    return ", ".join((*map(_version, programs), f"Linux {platform.release().split('-')[0]}"))


def _version(argv: list[str]) -> str:
    """The name and the version in the first words that it prints; containerd says its place between them."""
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return " ".join(word for word in printed[:3] if "/" not in word and not word.startswith("("))
