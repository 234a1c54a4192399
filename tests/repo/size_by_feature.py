"""Prints how many lines of the package each feature has, and how many it had in another revision, as a table in Markdown.

    .venv/bin/python -m tests.repo.size_by_feature 02e0847a

A file counts for the first feature below that its path begins with, else for its room. A file that has moved counts under its
present path, as long as git recognises it.
"""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FEATURES = {
    "connectivity: every way to Services tried in a cluster": (
        "cli/connectivity.py",
        "diagnosis/connectivity/",
        "proxy/source/pod_exec.py",
    ),
    "takeover: kube-proxy's place in a cluster, and back": ("cli/migration/", "cli/takeover.py"),
    "all nodes: explain, check, problems, trace, bundle of a cluster": ("cli/all_nodes/", "diagnosis/all_nodes/"),
    "saved state: Services without an API server": ("proxy/source/saved/", "proxy/source/mirror.py"),
    "self-audit: what the kernel holds, whatever it reports": (
        "proxy/dataplane/driver/element_walk.py",
        "proxy/dataplane/driver/chain_upkeep.py",
        "proxy/dataplane/driver/walk_rest.py",
        "proxy/dataplane/interface_drift.py",
        "proxy/dataplane/interface_sources.py",
    ),
    "standby table and reliefs of the driver": (
        "proxy/dataplane/driver/commit_plan.py",
        "proxy/dataplane/driver/other_writers.py",
        "proxy/dataplane/driver/standby.py",
        "proxy/engine/reader_window.py",
    ),
    "watched conditions: routes, hooks, ports, sysctls": (
        "proxy/dataplane/connection_table.py",
        "proxy/dataplane/endpoint_route",
        "proxy/dataplane/hook_order",
        "proxy/dataplane/interface_watch.py",
        "proxy/dataplane/node_conditions.py",
        "proxy/dataplane/node_sysctls.py",
        "proxy/dataplane/reverse_path.py",
        "proxy/dataplane/source_port",
        "proxy/observe/agent_conditions.py",
        "proxy/observe/repeated_drift.py",
    ),
    "expiry warnings of credentials": (
        "proxy/source/client/credential_watch.py",
        "proxy/source/client/expiry.py",
        "runtime/validity.py",
    ),
    "kubectl plugin and completion of names": (
        "cli/kubectl_plugin.py",
        "cli/known_names.py",
        "cli/named_pods.py",
        "cli/pod_lookup.py",
        "cli/trace_names.py",
    ),
    "protobuf in the API server and for clients": (
        "apiserver/api/protobuf",
        "apiserver/machinery/schema/protobuf",
        "wire/protobuf.py",
    ),
    "kinds beyond Services: Pods, Nodes, Deployments, templates": (
        "kinds/deployment.py",
        "kinds/node.py",
        "kinds/pod/",
        "kinds/podtemplate.py",
    ),
    "limits of clients of the API server and of listeners": (
        "apiserver/api/body_room.py",
        "apiserver/api/event_limits.py",
        "apiserver/api/intake.py",
        "apiserver/api/turns.py",
        "apiserver/machinery/loop_time.py",
        "runtime/serving/admission.py",
        "runtime/serving/connection.py",
        "runtime/serving/memory.py",
    ),
    "reviews, impersonation, selectors, commits of kube-apiserver's form": (
        "apiserver/api/impersonation.py",
        "apiserver/api/review",
        "apiserver/certificate_watch.py",
        "apiserver/machinery/commits.py",
        "apiserver/machinery/planned.py",
        "apiserver/machinery/selectors.py",
    ),
    "DNS process: replaced when it hangs, shares, privileges": (
        "names/feed/dns_supervisor.py",
        "names/feed/heartbeat.py",
        "names/feed/meeting.py",
        "names/server/privileges.py",
        "names/shares.py",
    ),
}
DEEP = ("apiserver", "diagnosis", "names", "proxy", "wire")
"""Places whose rooms have rows of their own."""


def git(*arguments: str) -> str:
    """Returns what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def former_paths(revision: str) -> dict[str, str]:
    """Returns the path in the revision of each file that has another one now."""
    moved = git("diff", "-M40%", "-l0", "--name-status", "--diff-filter=R", revision, "--", "nodeagent").splitlines()
    return {now: then for _, then, now in (line.split("\t") for line in moved)}


def lengths(revision: str) -> dict[str, int]:
    """Returns the number of lines of each Python file of the package in the revision."""
    counted = git("grep", "-c", "", revision, "--", "nodeagent/*.py").splitlines()
    return {path: int(count) for _, path, count in (line.split(":") for line in counted)}


def subject(path: str) -> str:
    """Returns the feature of a file, or its room."""
    inside = path.removeprefix("nodeagent/")
    for feature, starts in FEATURES.items():
        if inside.startswith(starts):
            return feature
    room = inside.split("/")[: 2 if inside.startswith(DEEP) else 1]
    return "/".join(part for part in room if not part.endswith(".py")) or "entry points"


def main(revision: str) -> None:
    """Prints the table: features in the order above, then rooms by name."""
    before, moved = lengths(revision), former_paths(revision)
    then: defaultdict[str, int] = defaultdict(int)
    now: defaultdict[str, int] = defaultdict(int)
    for path, count in lengths("HEAD").items():
        now[subject(path)] += count
        then[subject(path)] += before.pop(moved.get(path, path), 0)
    then["files that are gone"] = sum(before.values())
    print(f"| Feature, then room | {revision} | now | more |\n|---|---|---|---|")
    order = [*FEATURES, *sorted(now.keys() - FEATURES), "files that are gone"]
    for name in order:
        print(f"| {name} | {then[name]:,} | {now[name]:,} | {now[name] - then[name]:+,} |")
    total, former = sum(now.values()), sum(then.values())
    print(f"| all | {former:,} | {total:,} | {total - former:+,} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
