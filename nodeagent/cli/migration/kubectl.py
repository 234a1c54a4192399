"""kubectl, with the user's own credentials, plugins and proxies.

Our own API client has neither `exec` (a protocol of streams) nor kustomize; administrators have kubectl.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from nodeagent.cli.migration.found import AGENT, NAMESPACE, Document

AT_ONCE = 8
SECONDS = 60.0
"""Timeout of one call: until the server, or a command in a pod, has answered."""


class KubectlFailed(Exception):
    """One line: the call, and the last line of its output."""


class CommandResult(NamedTuple):
    """The result of a command: exit code, standard output, standard error."""

    code: int
    output: str
    errors: str


class Kubectl:
    """Runs kubectl. flags: those that select the cluster. Methods raise KubectlFailed."""

    def __init__(self, flags: Sequence[str] = ()) -> None:
        path = shutil.which("kubectl")
        if path is None:
            raise KubectlFailed("there is no kubectl in $PATH: install it; the takeover uses it to change the cluster")
        self._command = (path, *flags)

    def call(self, *arguments: str, text: str | None = None, seconds: float = SECONDS) -> CommandResult:
        """Returns the result, also of a failure. text: its standard input."""
        try:
            done = subprocess.run(  # noqa: S603 - kubectl itself, without a shell
                [*self._command, *arguments], input=text, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlFailed(f"kubectl {arguments[0]}: no answer in {seconds:g} s") from error
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Returns its standard output. Raises KubectlFailed also for an exit code other than 0."""
        ended = self.call(*arguments, text=text)
        if ended.code != 0:
            raise KubectlFailed(f"kubectl {arguments[0]}: {_last_line(ended.errors)}")
        return ended.output

    def get(self, *arguments: str, namespace: str = NAMESPACE) -> Document | None:
        """Returns an object or a list of them; None if it does not exist."""
        text = self.run("get", "--namespace", namespace, *arguments, "--ignore-not-found", "--output", "json")
        document: Document | None = json.loads(text) if text.strip() else None
        return document

    def items(self, *arguments: str) -> list[Document]:
        """Returns the objects of a list."""
        found = self.get(*arguments)
        return [] if found is None else list(found["items"])

    def patch(self, kind: str, name: str, patch: Document) -> None:
        """Sends a JSON merge patch."""
        self.run("patch", "--namespace", NAMESPACE, kind, name, "--type", "merge", "--patch", json.dumps(patch))

    def apply(self, manifests: str) -> list[str]:
        """Returns what was applied: kind and name, as in each line of kubectl."""
        output = self.run(
            *(
                "apply",
                "--server-side",
                "--force-conflicts",
                "--field-manager",
                "nodeagent-takeover",
                "--filename",
                "-",
            ),
            text=manifests,
        )
        return [line.split()[0] for line in output.splitlines() if line]

    def in_pod(self, pod: str, *command: str) -> CommandResult:
        """Runs a command in a pod of our agents."""
        return self.call("exec", "--namespace", NAMESPACE, pod, "--container", AGENT, "--", *command)

    def kustomize(self, directory: Path) -> str:
        """Returns the manifests that a kustomization produces."""
        return self.run("kustomize", str(directory), "--load-restrictor", "LoadRestrictionsNone")


def for_each(work: Callable[[str], None], names: Sequence[str]) -> None:
    """Runs `work` for each name, several in parallel. Finally raises the first error in the order of names."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(work, name) for name in names]:
            future.result()


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if not line.startswith("command terminated")]
    return lines[-1] if lines else "it failed without a message"
